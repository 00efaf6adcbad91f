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
    "optipng": ALL, "jpegoptim": ALL, "unzstd": ALL, "unlzma": ALL, "uncompress": ALL,
    "convert": LAST, "magick": LAST, "uniq": LAST, "xxd": LAST, "objcopy": LAST, "qpdf": LAST, "ffmpeg": LAST,
}  # fmt: skip
"""Programs that destroy or replace: all of their arguments, what lies at or below the last one, or the last of several."""
ONLY_WITH = {"ffmpeg": "-y"}
"""Programs that replace nothing without this word."""
IN_PLACE = {
    "sed": ("i", "--in-place"), "gsed": ("i", "--in-place"), "perl": ("i", ""), "ruby": ("i", ""),
    "awk": ("", "inplace"), "gawk": ("", "inplace"), "yq": ("i", "--inplace"), "prettier": ("w", "--write"),
    "eslint": ("", "--fix"), "ruff": ("", "--fix"), "gofmt": ("w", ""), "goimports": ("w", ""), "clang-format": ("i", ""),
    "autopep8": ("i", "--in-place"), "ln": ("f", "--force"), "zstd": ("", "--rm"),
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
CLUSTERED = frozenset(("curl", "wget", "sort", "shuf", "http", "gpg", "aria2c"))
"""Those whose option may stand behind other letters: `curl -so FILE`."""
PACKED = {"gzip": ".gz", "gunzip": ".gz", "bzip2": ".bz2", "bunzip2": ".bz2", "xz": ".xz", "unxz": ".xz", "zstd": ".zst",
          "unzstd": ".zst", "lzma": ".lzma", "unlzma": ".lzma"}  # fmt: skip
"""Programs that write beside each file another one, with or without this ending."""
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
         "worktree", "checkout-index")
    ),
    "hg": frozenset(("update", "up", "revert", "purge", "strip", "rebase", "merge", "pull", "graft", "rm", "mv", "shelve")),
    "svn": frozenset(("revert", "update", "up", "switch", "merge", "rm", "delete", "mv", "move", "cleanup", "patch")),
    "jj": frozenset(("restore", "abandon", "undo", "op", "edit", "new", "rebase", "squash", "checkout")),
    "cargo": frozenset(("clean", "fmt", "fix")),
    "go": frozenset(("fmt", "fix", "generate")),
    "npm": frozenset(("ci", "uninstall", "prune")),
    "ruff": frozenset(("format",)),
}  # fmt: skip
"""Programs whose first word decides."""
NAMING = frozenset(("checkout", "mv", "restore", "rm"))
"""Words of git after which paths may be given."""
ELSEWHERE = ("-C", "--git-dir", "--work-tree")
"""Options of git after which its paths are not those of the current folder."""
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
    "sed": ("-e", "-f", "-l"),
    "uniq": ("-f", "-s", "-w"),
    "xxd": ("-c", "-g", "-l", "-o", "-s"),
    "awk": ("-F", "-v"), "gawk": ("-F", "-v"), "mawk": ("-F", "-v"),
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
CODE = {"env": ("-S", "--split-string"), "flock": ("-c", "--command")}
"""Carriers' options whose value is a command line."""
READING = frozenset(("watch", "parallel", "hyperfine", "entr"))
"""Carriers that give their words to a shell: one word may be a whole command line."""
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "eval", "su", "runuser", "script"))
EXECUTING = ("-x", "-X", "--exec", "--exec-batch")
"""Options of `fd` behind which a command stands that gets what is found."""
AWK = frozenset(("awk", "gawk", "mawk", "nawk", "goawk"))
POWERSHELL = ("pwsh", "powershell")
INTERPRETERS = ("python", "pypy", "node", "perl", "ruby", "php", "deno", "bun", "osascript", "lua", "tclsh", "Rscript",
                "groovy", "julia", "raku", "elixir", *POWERSHELL)  # fmt: skip
DESTROYING = (
    "delete", "Delete", "popen", "FileUtils", "File.w", "Bun.", "Deno.", "fs.", "file.remove", "unlink", "copy", "`", "qx",
    "remove", "unlink", "rmtree", "rmdir", "rename", "replace(", "move(", "write", "truncate", "shutil", "rmSync",
    "'w'", '"w"', "subprocess", "system", "exec(", "spawn", "rm -", "File.open", "open(", "fs.rm",
)  # fmt: skip
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
WRITING = ("system(", '| "', '|"', "print >", "printf >")
"""What lets a program of awk write or run another one."""
