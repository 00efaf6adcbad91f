"""What programs of a shell do to files: which destroy, which write what an option names, which run another one."""

from __future__ import annotations

ALL, DESTINATION, LAST = "all", "destination", "last"
PROGRAMS = {
    "rm": ALL, "unlink": ALL, "shred": ALL, "mv": ALL, "rename": ALL, "truncate": ALL, "sponge": ALL, "srm": ALL,
    "trash": ALL, "trash-put": ALL, "ed": ALL, "ex": ALL, "patch": ALL, "gzip": ALL, "gunzip": ALL,
    "bzip2": ALL, "bunzip2": ALL, "xz": ALL, "unxz": ALL, "lzma": ALL, "dos2unix": ALL, "unix2dos": ALL, "sd": ALL,
    "rmdir": ALL, "del": ALL, "erase": ALL, "Remove-Item": ALL, "Move-Item": ALL, "Set-Content": ALL, "Clear-Content": ALL,
    "cp": DESTINATION, "install": DESTINATION, "rsync": DESTINATION, "scp": DESTINATION, "Copy-Item": DESTINATION,
    "rimraf": ALL, "del-cli": ALL, "trash-cli": ALL, "trash-rm": ALL, "rip": ALL, "ri": ALL, "mogrify": ALL, "strip": ALL,
    "optipng": ALL, "jpegoptim": ALL, "unzstd": ALL, "unlzma": ALL, "uncompress": ALL, "pigz": ALL, "unpigz": ALL, "lzip": ALL,
    "pbzip2": ALL, "zstd": ALL, "lz4": ALL, "unlz4": ALL, "brotli": ALL,
    "convert": LAST, "magick": LAST, "uniq": LAST, "xxd": LAST, "objcopy": LAST, "qpdf": LAST, "ffmpeg": LAST,
}  # fmt: skip
"""Programs that destroy or replace: all of their arguments, what lies at or below the last one, or the last of several."""
ONLY_WITH = {"ffmpeg": "-y"}
"""Programs that replace nothing without this word."""
INPLACE = ("inplace", "-iinplace", "--include=inplace")
IN_PLACE: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "sed": ("i", "--in-place"), "gsed": ("i", "--in-place"), "perl": ("i", ""), "ruby": ("i", ""),
    "awk": ("", INPLACE), "gawk": ("", INPLACE), "shfmt": ("w", "--write"),
    "codespell": ("w", "--write-changes"), "yq": ("i", "--inplace"), "prettier": ("w", "--write"),
    "eslint": ("", "--fix"), "ruff": ("", "--fix"), "gofmt": ("w", ""), "goimports": ("w", ""), "clang-format": ("i", ""),
    "autopep8": ("i", "--in-place"), "ln": ("f", "--force"),
    "tidy": ("m", "--modify"), "tar": ("", "--remove-files"), "bsdtar": ("", "--remove-files"), "zip": ("m", "--move"),
    "7z": ("", "-sdel"), "7za": ("", "-sdel"), "7zz": ("", "-sdel"),
}  # fmt: skip
"""Programs that rewrite files only if they are told so: by a letter among their short options, or by a long one."""
COMPILER = ("-o",)
PLAIN = ("-o", "--output")
OUTPUT = {
    "curl": ("-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii", "--stderr"),
    "wget": ("-O", "--output-document", "-o", "--output-file"),
    "aria2c": ("-o", "--out"), "http": PLAIN, "https": PLAIN, "xh": PLAIN, "yt-dlp": PLAIN,
    "openssl": ("-out", "-keyout"), "gpg": PLAIN, "age": PLAIN, "ssh-keygen": ("-f",),
    "gcc": COMPILER, "g++": COMPILER, "cc": COMPILER, "c++": COMPILER, "clang": COMPILER, "clang++": COMPILER, "ld": COMPILER,
    "as": COMPILER, "rustc": COMPILER, "tcc": COMPILER, "nvcc": COMPILER, "ghc": COMPILER, "ocamlc": COMPILER, "bison": COMPILER,
    "flex": COMPILER, "emcc": COMPILER, "go": ("-o", "-coverprofile", "-cpuprofile", "-memprofile"), "esbuild": ("--outfile",),
    "rollup": ("-o", "--file"), "tsc": ("--outFile", "--outfile"), "pandoc": PLAIN, "dot": COMPILER, "gs": ("-o", "-sOutputFile"),
    "xmllint": PLAIN, "iconv": PLAIN, "sort": PLAIN, "shuf": PLAIN, "patch": PLAIN, "cwebp": COMPILER, "yq": COMPILER,
    "pip-compile": ("-o", "--output-file"), "pg_dump": ("-f", "--file"), "mysqldump": ("-r", "--result-file"),
    "time": PLAIN, "strace": PLAIN, "ltrace": PLAIN, "tidy": PLAIN, "zstd": COMPILER, "cpio": ("-O", "-F", "--file"),
}  # fmt: skip
"""Programs, and their options that name a file which they write anew."""
CLUSTERED = {
    "curl": "AbCdeEFHhKmPQrTtUuwXxYyz", "wget": "aABDeGiIlPQRtTUwX", "sort": "kStT", "shuf": "in", "http": "aAps", "gpg": "ru",
    "aria2c": "dijksx",
}  # fmt: skip
"""Those whose option may stand behind other letters (`curl -so FILE`, `sort -uoFILE`), and the letters that take a value."""
NO_OUTPUT = frozenset(
    ("grep", "egrep", "fgrep", "rg", "ag", "ls", "ps", "lsblk", "lsof", "set", "shopt", "ssh", "scp", "sftp", "mount", "find",
     "pytest", "py.test", "useradd", "xxd", "install", "chown", "kubectl", "docker", "podman", "unzip", "column", "df", "id", "od",
     "test", "[", "systemctl", "journalctl", "helm", "az", "echo", "printf")
)  # fmt: skip
"""Programs whose `-o` names no file that they write."""
PACKED = {"lz4": ".lz4", "unlz4": ".lz4", "brotli": ".br", "pigz": ".gz", "unpigz": ".gz", "lzip": ".lz", "pbzip2": ".bz2",
          "gzip": ".gz", "gunzip": ".gz", "bzip2": ".bz2", "bunzip2": ".bz2", "xz": ".xz", "unxz": ".xz", "zstd": ".zst",
          "unzstd": ".zst", "lzma": ".lzma", "unlzma": ".lzma"}  # fmt: skip
"""Programs that write beside each file another one, with or without this ending."""
KEEPING = {"zstd": "--rm", "lz4": "--rm", "unlz4": "--rm", "brotli": "--rm"}
"""Those that leave what they are given in its place unless an option says otherwise."""
UNPACKING = {"cpio": ("-i", "--extract"), "7z": ("x", "e"), "7za": ("x", "e"), "7zz": ("x", "e"), "unrar": ("x", "e"),
             "jar": ("x", "-x", "--extract"), "pax": ("-r",), "ar": ("x",)}  # fmt: skip
"""Programs that write files whose names stand in an archive, if their first word begins so."""
ARRANGING = {
    "rclone": frozenset(
        ("sync", "copy", "copyto", "move", "moveto", "bisync", "delete", "deletefile", "purge", "rmdirs", "cleanup")
    ),
    "gsutil": frozenset(("cp", "mv", "rsync", "rm")),
    "gio": frozenset(("trash", "remove", "move", "copy", "rename", "save")),
}  # fmt: skip
"""Programs whose first word decides, and which act on all that follows it."""
COPYING = {
    "docker": ("cp", "container cp"), "podman": ("cp", "container cp"), "nerdctl": ("cp",), "kubectl": ("cp",), "oc": ("cp",),
    "aws": ("s3 cp", "s3 mv", "s3 sync"), "gcloud": ("storage cp", "storage mv", "storage rsync", "compute scp"),
    "lxc": ("file pull",), "adb": ("pull",), "mc": ("cp", "mv", "mirror"), "s3cmd": ("get", "sync"),
}  # fmt: skip
"""Programs that copy to the last of their words behind these, from somewhere else or from here."""
ARCHIVING = {"zip": (), "7z": ("a", "u", "d", "rn"), "7za": ("a", "u", "d", "rn"), "7zz": ("a", "u", "d", "rn")}
"""Programs that write an archive: it is the first of their words, or the one behind one of these."""
ASKING = ("select ", "explain ", "pragma ", ".schema", ".dump", ".tables", ".databases", ".indexes", ".headers", ".mode",
          ".fullschema")  # fmt: skip
"""What may be asked of a database without changing it."""
REWRITING = frozenset(
    ("black", "isort", "rustfmt", "yapf", "vim", "vi", "ex", "nvim", "emacs", "jscodeshift", "codemod")
)
"""Programs that rewrite whatever they are given."""
REPOSITORY = {
    "git": frozenset(
        ("am", "apply", "bisect", "checkout", "cherry-pick", "clean", "filter-branch", "filter-repo", "merge", "mv", "pull",
         "read-tree", "rebase", "reset", "restore", "revert", "rm", "sparse-checkout", "stash", "submodule", "switch",
         "worktree", "checkout-index", "lfs pull", "lfs checkout")
    ),
    "hg": frozenset(("update", "up", "revert", "purge", "strip", "rebase", "merge", "pull", "graft", "rm", "mv", "shelve")),
    "svn": frozenset(("revert", "update", "up", "switch", "merge", "rm", "delete", "mv", "move", "cleanup", "patch")),
    "jj": frozenset(("restore", "abandon", "undo", "op", "edit", "new", "rebase", "squash", "checkout")),
    "gh": frozenset(("co", "pr checkout", "release download", "run download", "repo sync")),
    "glab": frozenset(("mr checkout",)),
    "cargo": frozenset(("clean", "fmt", "fix")),
    "go": frozenset(("fmt", "fix", "generate")),
    "npm": frozenset(("ci", "uninstall", "prune")),
    "ruff": frozenset(("format",)),
}  # fmt: skip
"""Programs whose first word decides, or the first two."""
RUNNERS = frozenset(("make", "gmake", "npm", "yarn", "pnpm", "bun", "just", "task", "rake", "invoke", "mise"))
"""Programs that run what the project calls by a name."""
PACKAGES = ("install", "i", "add", "view", "info", "test", "t", "why", "outdated")
"""Words of theirs behind which no such name stands."""
CLEARING = ("clean", "clobber", "purge", "wipe", "nuke")
"""What is part of such a name if it takes files away."""
NAMING = frozenset(("checkout", "mv", "restore", "rm"))
"""Words of git after which paths may be given."""
ELSEWHERE = ("-C", "--git-dir", "--work-tree")
"""Options of git after which its paths are not those of the current folder."""
OTHER_TREE = ("--git-dir", "--work-tree")
"""Options of git after which it may act on any folder."""
TRACKED = frozenset(
    ("checkout", "checkout-index", "cherry-pick", "lfs", "merge", "mv", "pull", "read-tree", "rebase", "reset", "restore",
     "revert", "rm", "sparse-checkout", "stash", "switch")
)  # fmt: skip
"""Words of git after which it takes away nothing but what it tracks."""
BEYOND_TRACKED = {
    "stash": ("ua", ("--include-untracked", "--all")),
    "rebase": ("x", ("--exec",)),
}
"""Letters and long options with which they take away more."""
TRACKING = ("GIT_", " add ", " stage ", "update-index")
"""Texts in a command that may let git track something else by the time that it acts, or act somewhere else."""
PATHSPEC = frozenset("*?[:")
"""What makes a path of git one that it looks up itself."""
HARMLESS = {
    "git": {"stash": ("list", "show"), "worktree": ("list", "add"), "bisect": ("log",), "submodule": ("status",)}
}
WITH_VALUE = {
    "git": ("-C", "-c", "--git-dir", "--work-tree", "--namespace"),
    "sudo": ("-u", "-g", "-h", "-p", "-D", "-R", "-T", "-C", "-U", "-r", "-t"),
    "doas": ("-u", "-C"),
    "env": ("-u", "-S", "-C"),
    "timeout": ("-s", "-k"),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "stdbuf": ("-i", "-o", "-e"),
    "flock": ("-w", "-E", "--timeout", "--wait", "--conflict-exit-code"),
    "watch": ("-n", "--interval"),
    "time": ("-o", "-f"),
    "strace": ("-o", "-e", "-p", "-s", "-E", "-P", "-I", "-O", "-S", "-a", "-b", "-u", "-X"),
    "ltrace": ("-o", "-e", "-p", "-s", "-u", "-l", "-a"),
    "unshare": ("-R", "-w", "-S", "-G"),
    "npx": ("-p", "--package"),
    "parallel": ("-j", "-a", "-n", "-N", "-I", "-L", "-S", "--jobs", "--arg-file", "--colsep"),
    "xargs": ("-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s"),
    "cp": ("-t", "-S", "--suffix"),
    "mv": ("-t", "-S", "--suffix"),
    "truncate": ("-s", "-r"),
    "install": ("-m", "-o", "-g", "-t", "-S"),
    "sed": ("-e", "-f", "-l"), "gsed": ("-e", "-f", "-l"),
    "split": ("-a", "-b", "-C", "-l", "-n", "-t", "--bytes", "--lines", "--number", "--suffix-length", "--additional-suffix"),
    "csplit": ("-b", "-f", "-n", "--prefix", "--suffix-format", "--digits"),
    "scp": ("-P", "-i", "-o", "-F", "-c", "-J", "-l", "-S", "-D", "-X"),
    "rsync": ("-e", "--exclude", "--include", "--exclude-from", "--include-from", "--files-from", "-f", "--filter"),
    "kubectl": ("-n", "--namespace", "-c", "--container", "--context", "--kubeconfig"),
    "aws": ("--profile", "--region", "--exclude", "--include", "--endpoint-url", "--output"),
    "wget": ("-P", "--directory-prefix", "-O", "-o", "-e", "-i", "-t", "-T", "-U"),
    "pnpm": ("--filter", "-F", "-C", "--dir"), "yarn": ("--cwd",),
    "zip": ("-x", "-i", "-b", "-t", "-P"),
    "uniq": ("-f", "-s", "-w"),
    "xxd": ("-c", "-g", "-l", "-o", "-s"),
    "awk": ("-F", "-v"), "gawk": ("-F", "-v", "-i"), "mawk": ("-F", "-v", "-W"),
    "sqlite3": ("-cmd", "-init", "-separator", "-nullvalue", "-newline"),
}  # fmt: skip
"""Options that take the next word."""
CARRIERS = {
    "sudo": 0, "doas": 0, "env": 0, "nice": 0, "ionice": 0, "nohup": 0, "setsid": 0, "stdbuf": 0, "timeout": 1, "gtimeout": 1,
    "time": 0, "command": 0, "builtin": 0, "exec": 0, "xargs": 0, "parallel": 0, "busybox": 0, "toybox": 0, "chronic": 0,
    "unbuffer": 0, "watch": 0, "caffeinate": 0, "strace": 0, "ltrace": 0, "flock": 1, "chroot": 1, "unshare": 0, "nsenter": 0,
    "taskset": 1, "chrt": 1, "numactl": 0, "valgrind": 0, "fakeroot": 0, "eatmydata": 0, "xvfb-run": 0, "faketime": 1,
    "systemd-run": 0, "systemd-inhibit": 0, "rlwrap": 0, "noglob": 0, "nocorrect": 0, "npx": 0, "bunx": 0, "pnpx": 0, "uvx": 0,
    "shx": 0, "hyperfine": 0, "entr": 0, "dotenv": 0, "setarch": 1, "linux64": 0, "prlimit": 0, "proxychains": 0, "torsocks": 0,
}  # fmt: skip
"""Programs that run another one, and how many of their own words stand before it, options and assignments apart."""
CARRYING = {"uv": ("run",), "poetry": ("run",), "pipenv": ("run",), "pdm": ("run",), "pipx": ("run",), "hatch": ("run",),
            "bundle": ("exec",), "npm": ("exec", "x"), "pnpm": ("exec", "dlx"), "yarn": ("exec", "dlx"), "bun": ("x",),
            "mise": ("exec",), "direnv": ("exec",)}  # fmt: skip
"""The same for programs that do so behind one of these words."""
LOCAL_BINARIES = frozenset(("yarn", "pnpm", "bun"))
"""Those that run a program of the project that stands behind no word at all."""
OWN_WORDS = frozenset(("install", "unlink", "patch", "link", "run", "test", "build"))
"""Words of these that are programs of a shell, too."""
CODE = {"env": ("-S", "--split-string"), "flock": ("-c", "--command")}
"""Carriers' options whose value is a command line."""
CHANGING = {"env": ("-C", "--chdir"), "sudo": ("-D", "--chdir")}
"""Carriers' options that name the folder in which the other program runs."""
READING = frozenset(("watch", "parallel", "hyperfine", "entr"))
"""Carriers that give their words to a shell: one word may be a whole command line."""
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "eval", "su", "runuser", "script"))
EXECUTING = ("-x", "-X", "--exec", "--exec-batch")
"""Options of `fd` behind which a command stands that gets what is found."""
AWK = frozenset(("awk", "gawk", "mawk", "nawk", "goawk"))
POWERSHELL = ("pwsh", "powershell")
INTERPRETERS = ("python", "pypy", "node", "perl", "ruby", "php", "deno", "bun", "tsx", "ts-node", "osascript", "lua", "tclsh",
                "Rscript", "groovy", "julia", "raku", "elixir", *POWERSHELL)  # fmt: skip
DESTROYING = (
    "delete", "Delete", "popen", "FileUtils", "File.w", "Bun.", "Deno.", "fs.", "file.remove", "unlink", "copy", "`", "qx",
    "remove", "unlink", "rmtree", "rmdir", "rename", "replace(", "move(", "write", "truncate", "shutil", "rmSync",
    "'w'", '"w"', "subprocess", "system", "exec(", "spawn", "rm -", "File.open", "open(", "fs.rm",
)  # fmt: skip
REMOVING = (
    "rmtree", "unlink", "os.remove", "removedirs", "rmdir", "remove_tree", "shutil.move", "os.rename", "os.replace", "truncate(",
    "rmSync", "renameSync", "fs.rm", "fs.rename", "fs.move", "removeSync", "emptyDir", "rimraf", "Deno.remove", "Deno.rename",
    ".rm(", "rm -", "rm(", "'rm'", '"rm"', "'rm ", '"rm ', "`rm ", "git clean", "git checkout", "git reset", "git stash",
    "'clean'", '"clean"', "'reset'", '"reset"', "File.delete", "File.rename", "FileUtils", "file.remove", "send2trash", "trash(",
    "import remove", "import rename", "Delete(", "deleteFile", "deltree", "del_tree",
)  # fmt: skip
"""What removes, in the text of a program: of one that is a file, writing alone is nothing unusual."""
SCRIPTS = (".sh", ".bash", ".zsh", ".ksh", ".dash", ".fish")
"""Endings of files that a shell runs; of others the first line tells."""
CODED = (
    ".py",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".mts",
    ".cts",
    ".pl",
    ".rb",
    ".php",
    ".lua",
    ".R",
    ".jl",
    ".exs",
    ".tcl",
    ".ps1",
)
"""Endings of files that an interpreter runs."""
BEFORE_SCRIPT = frozenset(
    ("-W", "-X", "-I", "-M", "-r", "--require", "--import", "--loader", "--experimental-loader", "-o", "+o", "-O", "+O",
     "--rcfile", "--init-file", "--env-file", "-d", "-C", "--config", "-c")
)  # fmt: skip
"""Options of shells and interpreters that take the next word, so that this is not the program which is run."""
CMDLETS = (
    "rm ",
    "del ",
    "ri ",
    "erase ",
    "mv ",
    "move ",
    "Remove-",
    "Clear-",
    "Set-",
    "Move-",
    "Out-File",
    "Rename-",
    "Copy-",
)
"""Words that do so in PowerShell, beside those."""
WRITING = ("system(", '| "', '|"', "| getline", "|getline")
"""What lets a program of awk write or run another one."""
WITH_CODE = ("--eval=", "--print=", "--execute=", "--run=")
"""Options of interpreters with code in the same word."""
ENDING = ("-v", "-V", "-h", "--v", "--h", "-m", "-i", "--test", "-l", "--check", "-n", "--list", "-c", "-?")
"""Options with which an interpreter runs nothing that comes through a pipe."""
BUILDING = ("go", "cargo", "dotnet", "swift", "zig")
"""Programs that build one of the project with `run`, and give it the words that follow."""
CHECKING = ("test", "check", "lint", "install", "build", "bench", "doc", "info", "add")
"""Words of interpreters that have a test runner and the like in them."""
FORMATTING = ("fmt", "format")
REWRITES = (
    "--fix",
    "--write",
    "--in-place",
    "--inplace",
    "--overwrite",
    "--autocorrect",
    "--remove",
    "--delete",
    "--force",
)
"""Options that make a reader write: then all that it is given is in danger."""
READERS = frozenset(
    """
    : true false echo printf test [ set unset export local declare readonly shift return exit read type which whereis
    hash wait sleep jobs kill pgrep umask ulimit popd dirs pwd break continue case for select in man help history shopt
    getopts mapfile readarray let seq yes date uname hostname whoami id groups ps top htop free uptime lsof printenv
    locale clear tput

    cat bat batcat tac nl head tail less more most wc cut paste join comm tr rev fold fmt expand column tsort grep egrep
    fgrep zgrep rg ag ack jq xq diff diff3 cmp colordiff delta sdiff ls ll exa eza lsd tree stat file du df realpath
    readlink basename dirname locate mkdir touch chmod chown chgrp md5sum sha1sum sha256sum sha512sum shasum md5 b2sum
    cksum sum od hexdump strings nm objdump readelf ldd size zcat gzcat bzcat xzcat zstdcat zless zipinfo unzip identify
    ffprobe exif base64 base32 cal bc dc expr numfmt tokei cloc scc open xdg-open tee dd code mkfifo mktemp

    pytest py.test tox nox unittest coverage mypy pyright basedpyright pylint flake8 bandit vulture lint-imports
    pre-commit jest vitest mocha ava playwright cypress karma stylelint biome vue-tsc vite webpack next nuxt
    astro turbo nx gulp pnpm yarn pip pip3 uv poetry pdm hatch conda mamba make gmake cmake ninja meson ctest bazel just
    task mise rustup clippy-driver golangci-lint staticcheck govulncheck gotestsum gopls revive go-licenses venv
    http.server compileall py_compile pdb timeit clang-tidy cppcheck javac kotlinc scalac sbt mvn mvnw gradle gradlew
    ant dotnet msbuild swift swiftc xcodebuild mix rebar3 cabal stack dune zig nim crystal rake rspec rubocop bundle gem
    phpunit phpstan composer shellcheck bats hadolint actionlint yamllint markdownlint markdownlint-cli2 vale semgrep
    gitleaks gdb lldb perf gprof

    docker-compose helm terraform az ssh ping dig nslookup nc ss netstat ip systemctl journalctl brew apt apt-get dnf
    apk sqlite3 duckdb keepfast claude codex
    """.split()
)
"""Programs that leave alone what they are given, but for what the tables above say: they read, check, test or build, or write
beside it. Of any other one, each file or folder that it names may be gone afterwards."""
