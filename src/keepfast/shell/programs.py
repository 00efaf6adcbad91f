"""Tables of what command line programs do to files: which destroy, which write a file, which run another program."""

from __future__ import annotations

ALL_ARGUMENTS, DESTINATION, LAST_ARGUMENT = "all", "destination", "last"
DESTROYED_ARGUMENTS = {
    **dict.fromkeys(
        """
        rm unlink shred mv rename truncate sponge srm trash trash-put ed ex patch gzip gunzip bzip2 bunzip2 xz
        unxz lzma dos2unix unix2dos sd rmdir del erase Remove-Item Move-Item Set-Content Clear-Content rimraf
        del-cli trash-cli trash-rm rip ri mogrify strip optipng jpegoptim unzstd unlzma uncompress pigz unpigz
        lzip pbzip2 zstd lz4 unlz4 brotli
        """.split(),
        ALL_ARGUMENTS,
    ),
    **dict.fromkeys("cp install rsync scp Copy-Item".split(), DESTINATION),
    **dict.fromkeys("convert magick uniq xxd objcopy qpdf ffmpeg".split(), LAST_ARGUMENT),
}
"""Programs that destroy or replace files: all operands, what lies at or below the last one, or the last of several."""
REQUIRED_OPTION = {"ffmpeg": "-y"}
"""Programs that replace nothing without this option."""
AWK_IN_PLACE = ("inplace", "-iinplace", "--include=inplace")
IN_PLACE_OPTIONS: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "sed": ("i", "--in-place"), "gsed": ("i", "--in-place"), "perl": ("i", ""), "ruby": ("i", ""),
    "awk": ("", AWK_IN_PLACE), "gawk": ("", AWK_IN_PLACE), "shfmt": ("w", "--write"),
    "codespell": ("w", "--write-changes"), "yq": ("i", "--inplace"), "prettier": ("w", "--write"),
    "eslint": ("", "--fix"), "ruff": ("", "--fix"), "gofmt": ("w", ""), "goimports": ("w", ""), "clang-format": ("i", ""),
    "autopep8": ("i", "--in-place"), "ln": ("f", "--force"),
    "tidy": ("m", "--modify"), "tar": ("", "--remove-files"), "bsdtar": ("", "--remove-files"), "zip": ("m", "--move"),
    "7z": ("", "-sdel"), "7za": ("", "-sdel"), "7zz": ("", "-sdel"),
}  # fmt: skip
"""Programs that rewrite their operands only with an option: a letter among the short ones, or a long one."""
SHORT_OUTPUT = ("-o",)
SHORT_OR_LONG_OUTPUT = ("-o", "--output")
OUTPUT_OPTIONS = {
    **dict.fromkeys(
        """
        gcc g++ cc c++ clang clang++ ld as rustc tcc nvcc ghc ocamlc bison flex emcc dot cwebp yq zstd
        """.split(),
        SHORT_OUTPUT,
    ),
    **dict.fromkeys(
        "http https xh yt-dlp gpg age pandoc xmllint iconv sort shuf patch time strace ltrace tidy".split(),
        SHORT_OR_LONG_OUTPUT,
    ),
    "curl": ("-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii", "--stderr"),
    "wget": ("-O", "--output-document", "-o", "--output-file"),
    "aria2c": ("-o", "--out"),
    "openssl": ("-out", "-keyout"),
    "ssh-keygen": ("-f",),
    "go": ("-o", "-coverprofile", "-cpuprofile", "-memprofile"),
    "esbuild": ("--outfile",),
    "rollup": ("-o", "--file"),
    "tsc": ("--outFile", "--outfile"),
    "gs": ("-o", "-sOutputFile"),
    "pip-compile": ("-o", "--output-file"),
    "pg_dump": ("-f", "--file"),
    "mysqldump": ("-r", "--result-file"),
    "cpio": ("-O", "-F", "--file"),
}
"""Programs, and their options that name a file that is overwritten."""
CLUSTER_VALUE_LETTERS = {
    "curl": "AbCdeEFHhKmPQrTtUuwXxYyz", "wget": "aABDeGiIlPQRtTUwX", "sort": "kStT", "shuf": "in", "http": "aAps", "gpg": "ru",
    "aria2c": "dijksx",
}  # fmt: skip
"""Programs whose output option may follow other letters (`curl -so FILE`), and those of their letters that take a value."""
NO_OUTPUT_AT_O = frozenset(
    ("grep", "egrep", "fgrep", "rg", "ag", "ls", "ps", "lsblk", "lsof", "set", "shopt", "ssh", "scp", "sftp", "mount", "find",
     "pytest", "py.test", "useradd", "xxd", "install", "chown", "kubectl", "docker", "podman", "unzip", "column", "df", "id", "od",
     "test", "[", "systemctl", "journalctl", "helm", "az", "echo", "printf")
)  # fmt: skip
"""Programs whose `-o` names no output file."""
COMPRESSED_SUFFIXES = {
    "lz4": ".lz4", "unlz4": ".lz4", "brotli": ".br", "pigz": ".gz", "unpigz": ".gz", "lzip": ".lz", "pbzip2": ".bz2",
    "gzip": ".gz", "gunzip": ".gz", "bzip2": ".bz2", "bunzip2": ".bz2", "xz": ".xz", "unxz": ".xz", "zstd": ".zst",
    "unzstd": ".zst", "lzma": ".lzma", "unlzma": ".lzma",
}  # fmt: skip
"""Compressors: each operand is replaced by a file with or without this suffix."""
DELETE_INPUT_OPTION = {"zstd": "--rm", "lz4": "--rm", "unlz4": "--rm", "brotli": "--rm"}
"""Compressors that keep their input unless this option is given."""
EXTRACT_WORDS = {"cpio": ("-i", "--extract"), "7z": ("x", "e"), "7za": ("x", "e"), "7zz": ("x", "e"), "unrar": ("x", "e"),
             "jar": ("x", "-x", "--extract"), "pax": ("-r",), "ar": ("x",)}  # fmt: skip
"""Programs that extract an archive if their first argument begins so."""
TRANSFER_VERBS = {
    "rclone": frozenset(
        ("sync", "copy", "copyto", "move", "moveto", "bisync", "delete", "deletefile", "purge", "rmdirs", "cleanup")
    ),
    "gsutil": frozenset(("cp", "mv", "rsync", "rm")),
    "gio": frozenset(("trash", "remove", "move", "copy", "rename", "save")),
}  # fmt: skip
"""Programs that act on all operands after one of these verbs."""
COPY_VERBS = {
    "docker": ("cp", "container cp"), "podman": ("cp", "container cp"), "nerdctl": ("cp",), "kubectl": ("cp",), "oc": ("cp",),
    "aws": ("s3 cp", "s3 mv", "s3 sync"), "gcloud": ("storage cp", "storage mv", "storage rsync", "compute scp"),
    "lxc": ("file pull",), "adb": ("pull",), "mc": ("cp", "mv", "mirror"), "s3cmd": ("get", "sync"),
}  # fmt: skip
"""Programs that copy to their last operand after one of these verbs."""
ARCHIVE_VERBS = {"zip": (), "7z": ("a", "u", "d", "rn"), "7za": ("a", "u", "d", "rn"), "7zz": ("a", "u", "d", "rn")}
"""Programs that write an archive: their first operand, or the one after one of these verbs."""
READ_ONLY_QUERIES = ("select ", "explain ", "pragma ", ".schema", ".dump", ".tables", ".databases", ".indexes", ".headers", ".mode",
          ".fullschema")  # fmt: skip
"""Beginnings of statements that do not change a database."""
REWRITERS = frozenset(
    ("black", "isort", "rustfmt", "yapf", "vim", "vi", "ex", "nvim", "emacs", "jscodeshift", "codemod")
)
"""Programs that rewrite all their operands."""
DESTRUCTIVE_SUBCOMMANDS = {
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
"""Programs that destroy something after these verbs of one or two words."""
TASK_RUNNERS = frozenset(("make", "gmake", "npm", "yarn", "pnpm", "bun", "just", "task", "rake", "invoke", "mise"))
"""Programs that run a task of the project by its name."""
PACKAGE_VERBS = ("install", "i", "add", "view", "info", "test", "t", "why", "outdated")
"""Their verbs that no task name follows."""
CLEAN_TASK_WORDS = ("clean", "clobber", "purge", "wipe", "nuke")
"""Parts of task names that remove files."""
GIT_ENDINGS = frozenset(
    (
        "git",
        "pack",
        "idx",
        "rev",
        "bitmap",
        "graph",
        "keep",
        "mtimes",
        "promisor",
        "sample",
        "lock",
        "index",
        "txt",
        "log",
        "toml",
    )
)
"""Endings of git's own folder and of files in it."""
GIT_PATH_VERBS = frozenset(("checkout", "mv", "restore", "rm"))
"""Verbs of git that paths may follow."""
GIT_OTHER_FOLDER_OPTIONS = ("-C", "--git-dir", "--work-tree")
"""Options of git that make its paths relative to another folder."""
GIT_OTHER_TREE_OPTIONS = ("--git-dir", "--work-tree")
"""Options of git that let it act on any folder."""
GIT_TRACKED_ONLY_VERBS = frozenset(
    ("checkout", "checkout-index", "cherry-pick", "lfs", "merge", "mv", "pull", "read-tree", "rebase", "reset", "restore",
     "revert", "rm", "sparse-checkout", "stash", "switch")
)  # fmt: skip
"""Verbs of git that remove nothing but tracked files."""
GIT_UNTRACKED_OPTIONS = {
    "stash": ("ua", ("--include-untracked", "--all")),
    "rebase": ("x", ("--exec",)),
}
"""Letters and long options with which they remove more."""
GIT_INDEX_CHANGES = ("GIT_", " add ", " stage ", "update-index")
"""Texts in a command that may make git track other files first, or act in another folder."""
PATHSPEC_LETTERS = frozenset("*?[:")
"""Characters that make a pathspec pattern of a path."""
HARMLESS_SUBCOMMANDS = {
    "git": {"stash": ("list", "show"), "worktree": ("list", "add"), "bisect": ("log",), "submodule": ("status",)}
}
VALUE_OPTIONS = {
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
"""Options whose value is the next word."""
WRAPPERS = {
    "sudo": 0, "doas": 0, "env": 0, "nice": 0, "ionice": 0, "nohup": 0, "setsid": 0, "stdbuf": 0, "timeout": 1, "gtimeout": 1,
    "time": 0, "command": 0, "builtin": 0, "exec": 0, "xargs": 0, "parallel": 0, "busybox": 0, "toybox": 0, "chronic": 0,
    "unbuffer": 0, "watch": 0, "caffeinate": 0, "strace": 0, "ltrace": 0, "flock": 1, "chroot": 1, "unshare": 0, "nsenter": 0,
    "taskset": 1, "chrt": 1, "numactl": 0, "valgrind": 0, "fakeroot": 0, "eatmydata": 0, "xvfb-run": 0, "faketime": 1,
    "systemd-run": 0, "systemd-inhibit": 0, "rlwrap": 0, "noglob": 0, "nocorrect": 0, "npx": 0, "bunx": 0, "pnpx": 0, "uvx": 0,
    "shx": 0, "hyperfine": 0, "entr": 0, "dotenv": 0, "setarch": 1, "linux64": 0, "prlimit": 0, "proxychains": 0, "torsocks": 0,
}  # fmt: skip
"""Programs that run another one, and the number of their own operands before it, not counting assignments."""
WRAPPER_VERBS = {"uv": ("run",), "poetry": ("run",), "pipenv": ("run",), "pdm": ("run",), "pipx": ("run",), "hatch": ("run",),
            "bundle": ("exec",), "npm": ("exec", "x"), "pnpm": ("exec", "dlx"), "yarn": ("exec", "dlx"), "bun": ("x",),
            "mise": ("exec",), "direnv": ("exec",)}  # fmt: skip
"""Programs that run another one after one of these verbs."""
LOCAL_BINARIES = frozenset(("yarn", "pnpm", "bun"))
"""Package managers that run a program of the project without any verb."""
PACKAGE_MANAGER_VERBS = frozenset(("install", "unlink", "patch", "link", "run", "test", "build"))
"""Their own verbs that are also names of programs."""
WRAPPER_CODE_OPTIONS = {"env": ("-S", "--split-string"), "flock": ("-c", "--command")}
"""Options of wrappers whose value is a command line."""
WRAPPER_FOLDER_OPTIONS = {"env": ("-C", "--chdir"), "sudo": ("-D", "--chdir")}
"""Options of wrappers that name the folder in which the other program runs."""
COMMAND_LINE_WRAPPERS = frozenset(("watch", "parallel", "hyperfine", "entr"))
"""Wrappers that pass their words to a shell: one word may be a whole command line."""
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "eval", "su", "runuser", "script"))
FD_EXEC_OPTIONS = ("-x", "-X", "--exec", "--exec-batch")
"""Options of `fd` that are followed by a command for the matches."""
AWK = frozenset(("awk", "gawk", "mawk", "nawk", "goawk"))
POWERSHELL = ("pwsh", "powershell")
INTERPRETERS = ("python", "pypy", "node", "perl", "ruby", "php", "deno", "bun", "tsx", "ts-node", "osascript", "lua", "tclsh",
                "Rscript", "groovy", "julia", "raku", "elixir", *POWERSHELL)  # fmt: skip
DESTRUCTIVE_CODE = (
    "delete", "Delete", "popen", "FileUtils", "File.w", "Bun.", "Deno.", "fs.", "file.remove", "unlink", "copy", "`", "qx",
    "remove", "unlink", "rmtree", "rmdir", "rename", "replace(", "move(", "write", "truncate", "shutil", "rmSync",
    "'w'", '"w"', "subprocess", "system", "exec(", "spawn", "rm -", "File.open", "open(", "fs.rm",
)  # fmt: skip
REMOVING_CODE = (
    "rmtree", "unlink", "os.remove", "removedirs", "rmdir", "remove_tree", "shutil.move", "os.rename", "os.replace", "truncate(",
    "rmSync", "renameSync", "fs.rm", "fs.rename", "fs.move", "removeSync", "emptyDir", "rimraf", "Deno.remove", "Deno.rename",
    ".rm(", "rm -", "rm(", "'rm'", '"rm"', "'rm ", '"rm ', "`rm ", "git clean", "git checkout", "git reset", "git stash",
    "'clean'", '"clean"', "'reset'", '"reset"', "File.delete", "File.rename", "FileUtils", "file.remove", "send2trash", "trash(",
    "import remove", "import rename", "Delete(", "deleteFile", "deltree", "del_tree",
)  # fmt: skip
"""Calls that remove or move files. For a script file only these count: that a program writes files is usual."""
SHELL_SUFFIXES = (".sh", ".bash", ".zsh", ".ksh", ".dash", ".fish")
"""Suffixes of shell scripts; for other files the first line decides."""
CODE_SUFFIXES = (
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
"""Suffixes of files that an interpreter runs."""
OPTIONS_BEFORE_SCRIPT = frozenset(
    ("-W", "-X", "-I", "-M", "-r", "--require", "--import", "--loader", "--experimental-loader", "-o", "+o", "-O", "+O",
     "--rcfile", "--init-file", "--env-file", "-d", "-C", "--config", "-c")
)  # fmt: skip
"""Options of shells and interpreters whose value is the next word, which is then not the script."""
POWERSHELL_CMDLETS = (
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
"""Commands that do so in PowerShell, in addition."""
AWK_PIPES = ("system(", '| "', '|"', "| getline", "|getline")
"""What makes an awk program write to or run another program."""
JOINED_CODE_OPTIONS = ("--eval=", "--print=", "--execute=", "--run=")
"""Options of interpreters that hold code in the same word."""
NO_STDIN_OPTIONS = ("-v", "-V", "-h", "--v", "--h", "-m", "-i", "--test", "-l", "--check", "-n", "--list", "-c", "-?")
"""Options with which an interpreter runs nothing from a pipe."""
BUILD_AND_RUN_TOOLS = ("go", "cargo", "dotnet", "swift", "zig")
"""Tools that build and start the project's program with `run`, and pass it the words that follow."""
INTERPRETER_VERBS = ("test", "check", "lint", "install", "build", "bench", "doc", "info", "add")
"""Verbs of interpreters with a built-in test runner and the like."""
FORMAT_VERBS = ("fmt", "format")
REWRITE_OPTIONS = (
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
"""Options that make a reading program write: then all its operands are in danger."""
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
"""Programs that leave their operands alone, except for what the tables above say: they read, check, test or build, or write
other files. Any other program may destroy each file or folder that it names."""
