"""A shell command is read as a shell would read it: what it may destroy is named, or known to be unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.shell.destruction import threat_of
from keepfast.shell.words import Redirection, Word, tokenize

ROOT = b"/home/dev/project"


def threatened(command: str, cwd: bytes, root: bytes) -> tuple[bytes, ...] | None:
    """Return the paths that the command names and destroys for certain; None if it destroys nothing for certain."""
    threat = threat_of(command, cwd, root)
    return threat.named if threat is not None and threat.is_certain else None


HARMLESS = [
    "", " ", "ls -la", "cat a.txt", "grep -rn x src", "git status", "git diff HEAD", "git log --oneline",
    "git add -A", "git commit -m 'rm x'",
    "git stash list", "git clean -n", "git clean -fd --dry-run", "git worktree list", "git -C sub status", "git --no-pager log",
    "echo 'rm -rf src'", 'echo "rm -rf src"', "echo rm", "# rm -rf src", "ls # > a", "sed -n 1,5p a.txt", "sed s/a/b/ a.txt",
    "awk '{print > \"/dev/null\"}' x", "find . -name '*.py'", "find . -type f -exec grep x {} +", "xargs grep x",
    "ls | xargs cat",
    "echo x >> log.txt", "ls 2>&1", "ls > /dev/null 2>&1", "ls &>/dev/null", "cmd 2>/dev/null", "cat < a.txt", "ls | tee -a log",
    "python3 script.py", "python3 -c 'print(1)'", "node -e 'console.log(1)'", "npm test", "make", "make test",
    "cargo build", "pytest -q",
    "[[ a > b ]] && ls", "echo $((1 > 2))", "(( a > b ))", "for f in a b; do cat $f; done", "if [ -f x ]; then cat x; fi",
    "rm -rf /tmp/scratch", "echo x > /tmp/out", "cp a.txt /tmp/b.txt", "cd /tmp && rm -rf scratch", "rm --help", "mv --version",
    "gzip -c a > /dev/null", "rsync -n a b", "cat <<EOF\nrm -rf src\nEOF", "cat <<'EOF'\n$(rm x)\nEOF",
    "bash script.sh", "bash -c 'ls'",
    "env FOO=rm ls", "FOO='rm x' ls", "timeout 5 ls", "command -v rm", "type rm", "tar tf a.tar", "cat a|wc -l",
    "true && false || ls",
    "curl https://x/y", "curl -s https://x/y | jq .", "curl -o /dev/null https://x/y", "curl -fsSL https://x/y",
    "curl -I https://x/y",
    "wget -qO- https://x/y", "wget -O - https://x/y", "wget --spider https://x/y", "wget -q https://x/y",
    "gcc -c x.c", "gcc --version", "gcc -Wall -Wno-unused x.c", "gcc -o /tmp/a x.c", "go build ./...", "go test ./...", "go vet",
    "openssl rand 32", "openssl x509 -in c -noout -text", "pandoc x.md", "shuf x", "sort x", "sort -u x", "sort -k 2 x", "uniq x",
    "uniq -c x", "uniq -f 1 x", "ffmpeg -i x.mp4", "ffprobe x.mp4", "convert --version", "identify x.png", "cpio -o", "cpio -t",
    "rclone ls remote:", "rclone sync -n a b", "awk '{print $1}' x", "awk -F: '{print $1}' x", "awk '$1 > 5' x", "gawk -f p.awk x",
    "sqlite3 a 'SELECT * FROM t'", "sqlite3 a .schema", "sqlite3 a .dump", "sqlite3 -header a 'select 1;'",
    "sqlite3 -readonly a 'drop table t'", "npx eslint .", "npx tsc --noEmit", "npx --version", "ruby -e 'puts 1'",
    "perl -e 'print 1'",
    "perl -ne 'print if /x/' a", "deno eval 'console.log(1)'", "pwsh -c 'Get-ChildItem'", "node -p 1+1", "php -r 'echo 1;'",
    "lua -e 'print(1)'", "fd -e py", "fd -e py -x wc -l", "fd . -X ls", "script --version", "trap - EXIT", "trap 'echo bye' EXIT",
    "trap '' INT", "alias ll='ls -l'; ll src", "nohup ls", "nice -n 5 ls", "flock lk ls", "setsid ls", "stdbuf -oL ls", "strace ls",
    "sudo -u x ls", "doas ls", "env -i ls", "time ls", "watch -n 1 ls", "watch 'ls -l'", "busybox ls", "su -c 'ls'",
    "unshare -r ls",
    "timeout 5 git status", "uv run pytest -q", "poetry run pytest", "npm run build", "pnpm install", "bundle exec rspec",
    "7z l x.7z", "gunzip -c a.gz", "gunzip -t a.gz", "gzip -l a.gz", "zcat a.gz", "man rm",
    "which rm", "jq . a.json", "docker ps", "python3 -m pytest -q", "python3 -m http.server", "rg -e rm src", "tree -L 2",
    "ls | parallel echo", "ls | xargs -I{} echo {}", "xargs -I {} cat {}", "diff a b", "cmp a b", "xxd a", "bash -n x.sh",
    # Reading, testing, checking and building leaves alone what is named.
    "head -n 5 a.txt", "tail -f log", "wc -l a.txt", "nl -ba a.py", "stat a", "file a", "du -sh src", "sha256sum a",
    "strings a.bin",
    "rg -n x src tests", "grep -o x a.txt", "ls -o src", "ps -o pid", "set -o pipefail", "ssh -o A=b host", "tree src", "bat a.py",
    "find src -name a -o -name b", "git diff src/a.py", "git show HEAD:a.py", "git add a.py", "git commit -am x",
    "git push --force",
    "git blame a.py", "git log -p -- src", "gh pr view 1", "pytest tests/test_a.py -k x", "python3 -m pytest tests/a.py",
    "python -m unittest tests.a", "python3 -m mypy src", "uv run pytest tests/a.py", "poetry run mypy src", "tox -e py311",
    "mypy src", "ruff check src", "pylint src", "flake8 src", "coverage run tests", "npm test -- src/a.test.ts", "npm run lint src",
    "npx jest src/a.test.ts", "npx vitest run src", "npx tsc -p tsconfig.json", "yarn test src", "yarn install", "pnpm build src",
    "pnpm install", "pnpm --filter web test", "bun test src", "make -C src", "make -f build.mk all", "cmake -S src",
    "ninja -C out all",
    "cargo test --test a", "cargo build --manifest-path a/Cargo.toml", "cargo clippy", "go test ./pkg", "go vet ./pkg",
    "gofmt -l src",
    "npm install clean-css", "npm test -- clean.test.ts", "go run ./cmd", "cargo run --bin a", "npx tsx a.ts",
    "golangci-lint run ./src", "mvn -f pom.xml test", "gradle -p src test", "javac A.java", "dotnet test a.csproj",
    "rspec spec/a.rb",
    "bundle exec rspec spec", "shellcheck a.sh", "docker build -f Dockerfile src", "docker compose up", "kubectl apply -f a.yaml",
    "terraform plan", "docker cp a.txt c:/x", "kubectl cp a.txt pod:/x", "aws s3 cp a.txt s3://b/x", "scp a.txt host:x",
    "rsync -a src host:/x", "touch a", "mkdir -p src/b", "chmod +x a.sh", "source .venv/bin/activate", ". ./env.sh", "python3 a.py",
    "node a.js", "node --test", "python3 --version", "python3 -V", "node -v", "perl -v", "php -m", "ruby -v", "node --eval='1+1'",
    "cat a | python3 -c 'print(1)'", "cat a | python3 -m json.tool", "cat a | node a.js", "awk '{print \"->\" $1}' a",
    "awk '{if ($1 > 2) print $1}' a", "awk '{print > \"/dev/stderr\"}' a", "sed -n 1,5p docs/rewrite.md",
    "curl -X POST https://x/y/a", "curl -XPOST -d @a https://x/y", "curl -H 'A: o' https://x/y/a", "sort -t o -k 2 a",
    "zstd -l a.zst",
    "tar -tvf a.tar", "tar tzf a.tgz", "script --help", "lz4 -t a.lz4", "mytool", "mytool --help src", "mytool https://x/y",
    "mytool /etc/hosts", "mytool -v", "mytool .", "mytool ..", "./run.sh", "bash tests/run.sh",
]  # fmt: skip


@pytest.mark.parametrize("command", HARMLESS)
def test_what_destroys_nothing_here_is_let_through(command: str) -> None:
    assert threatened(command, ROOT, ROOT) is None
    assert threat_of(command, ROOT, ROOT) is None


NAMED = {
    "rm -rf src": ["src"],
    "rm a b 'c d' \"e f\" g\\ h": ["a", "b", "c d", "e f", "g h"],
    "rm -- -x": ["-x"],
    "rm ./a/../b": ["b"],
    "rm /home/dev/project/deep/x /etc/y": ["deep/x"],
    "/bin/rm x": ["x"],
    "\\rm x": ["x"],
    "'rm' x": ["x"],
    "mv a b": ["a", "b"],
    "mv a dir/": ["a", "dir"],
    "cp a b": ["b", "b/a"],
    "cp -t dir a b": ["dir", "dir/a", "dir/b"],
    "rsync -a --delete src/ dst/": ["dst", "dst/src"],
    "install -m 644 a bin/a": ["bin/a", "bin/a/a"],
    "ln -sf target link": ["target", "link"],
    "sed -i s/a/b/ x.py y.py": ["x.py", "y.py"],
    "sed -i.bak -e s/a/b/ x.py": ["x.py"],
    "sed -Ei 's/a/b/' x.py": ["x.py"],
    "sed --in-place=.b s/a/b/ x.py": ["x.py"],
    "perl -i -p script.pl x": ["script.pl", "x"],
    "tee out.txt < in.txt": ["out.txt"],
    "dd if=/dev/zero of=disk.img bs=1": ["disk.img"],
    "truncate -s 0 log.txt": ["log.txt"],
    "shred -u key": ["key"],
    "patch file.c < fix.diff": ["file.c"],
    "echo hi > a.txt": ["a.txt"],
    "echo hi >a.txt": ["a.txt"],
    "echo hi 1> a.txt": ["a.txt"],
    "echo hi >| a.txt": ["a.txt"],
    "ls &> a.txt": ["a.txt"],
    "ls >& a.txt": ["a.txt"],
    "> a.txt": ["a.txt"],
    "ls 2> err.txt": ["err.txt"],
    "{ ls; } > a.txt": ["a.txt"],
    "cat > f <<'EOF'\nrm -rf q\nEOF\nrm r": ["f", "r"],
    "cat <<-EOF > f\n\tx\n\tEOF\nrm r": ["f", "r"],
    "cat <<A <<B > f\n1\nA\n2\nB\nrm r": ["f", "r"],
    "ls; rm a": ["a"],
    "ls && rm a || rm b": ["a", "b"],
    "ls\nrm a": ["a"],
    "ls & rm a": ["a"],
    "true | rm a": ["a"],
    "! rm a": ["a"],
    "if true; then rm a; else rm b; fi": ["a", "b"],
    "while read x; do rm a; done < list": ["a"],
    "case x in a) rm a;; esac": ["a"],
    "f() { rm a; }; f": ["a"],
    "(cd sub; rm y); rm z": ["sub/y", "z"],
    "cd sub && rm ../y": ["y"],
    "cd sub; cd ..; rm y": ["y"],
    "FOO=1 BAR='x y' rm a": ["a"],
    "sudo -u me rm a": ["a"],
    "env -u X A=1 rm a": ["a"],
    "nohup nice -n 5 rm a": ["a"],
    "timeout -s KILL 5 rm a": ["a"],
    "time rm a": ["a"],
    "exec rm a": ["a"],
    "bash -c 'rm a'": ["a"],
    "sh -ec 'cd sub && rm a'": ["sub/a"],
    "bash <<'EOF'\nrm a\nEOF": ["a"],
    "eval 'rm a'": ["a"],
    "echo $(rm a)": ["a"],
    'echo "$(rm a)"': ["a"],
    "echo `rm a`": ["a"],
    "cat <(rm a)": ["a"],
    "cat <<EOF\n$(rm a)\nEOF": ["a"],
    "echo ${x:-$(rm a)}": ["a"],
    "rm 한글.txt '공백 있는'": ["한글.txt", "공백 있는"],
    "rm a\\\n b": ["a", "b"],
    "gzip big.log": ["big.log"],
    # Programs that run another one.
    "flock ../lk rm a": ["a"],
    "flock -w 5 lk -c 'rm a'": ["a"],
    "nohup rm a": ["a"],
    "timeout 5 rm a": ["a"],
    "timeout --signal=KILL 5s rm a": ["a"],
    "nice rm a": ["a"],
    "ionice -c 3 rm a": ["a"],
    "stdbuf -o L rm a": ["a"],
    "setsid -w rm a": ["a"],
    "doas -u x rm a": ["a"],
    "env -i rm a": ["a"],
    "env -S 'rm a'": ["a"],
    "busybox rm a": ["a"],
    "chroot / rm a": ["a"],
    "unshare -r rm a": ["a"],
    "strace -f -o /tmp/log rm a": ["a"],
    "watch -n 1 rm a": ["a"],
    "watch 'rm a'": ["a"],
    "su -c 'rm a'": ["a"],
    "su - me -c 'rm a'": ["a"],
    "script -c 'rm a' /dev/null": ["a"],
    "script -qc 'rm a' /dev/null": ["a"],
    "npx rimraf a": ["a"],
    "npx --yes rimraf a": ["a"],
    "pnpm dlx rimraf a": ["a"],
    "npm exec rimraf a": ["a"],
    "uv run rm a": ["a"],
    "taskset 1 rm a": ["a"],
    "trap 'rm a' EXIT": ["a"],
    "alias r=rm; r a": ["a"],
    "alias r='rm -f'; r a b": ["a", "b"],
    # Programs that write what an option names.
    "curl -so a https://x/y": ["a"],
    "curl https://x/y -o a": ["a"],
    "curl --output=a https://x/y": ["a"],
    "curl -O https://x/y/a.txt": ["a.txt"],
    "curl -sSLO https://x/y/a.txt": ["a.txt"],
    "wget -qO a https://x/y": ["a"],
    "wget --output-document=a https://x/y": ["a"],
    "openssl rand -out a 32": ["a"],
    "openssl req -newkey rsa -keyout k -out c": ["k", "c"],
    "gcc -o a x.c": ["a"],
    "gcc -oa x.c": ["a"],
    "go build -o a ./cmd": ["a"],
    "go build -o=a ./cmd": ["a"],
    "pandoc x.md -o a": ["a"],
    "shuf -o a x": ["a"],
    "sort -o a x": ["a"],
    "sort -uo a x": ["a"],
    "sort --output=a x": ["a"],
    # Programs that write or take away what they are given.
    "tar --remove-files -cf x.tar a": ["x.tar", "a"],
    "tar cf x.tar a --remove-files": ["cf", "x.tar", "a"],
    "zip -m x.zip a": ["x.zip", "a"],
    "zip -rm x.zip a": ["x.zip", "a"],
    "7z a x.7z a -sdel": ["a", "x.7z"],
    "gunzip -f a.gz": ["a.gz", "a"],
    "gunzip -kf a.gz": ["a"],
    "gzip -f a": ["a", "a.gz"],
    "uniq x a": ["a"],
    "ffmpeg -y -i x.mp4 a": ["a"],
    "convert x.png a": ["a"],
    "rclone sync x a": ["x", "a"],
    "sqlite3 a 'DROP TABLE t'": ["a"],
    "sqlite3 a 'select 1; delete from t'": ["a"],
    'sqlite3 a "UPDATE t SET x=1"': ["a"],
    "sqlite3 a < more.sql": ["a"],
    "sqlite3 a <<EOF\nDELETE FROM t;\nEOF": ["a"],
    "tar cf F src": ["F"],
    "tar czvf F src": ["F"],
    "tar -czf F src": ["F"],
    "tar -c -f F src": ["F"],
    "tar -cvfF src": ["F"],
    "tar --create --file=F src": ["F"],
    "tar rf F src": ["F"],
    "zip F.zip src": ["F.zip"],
    "zip -r F src": ["F", "F.zip"],
    "7z a F src": ["F"],
    "lz4 -f x F": ["x", "F", "x.lz4", "F.lz4"],
    "zstd -f F": ["F", "F.zst"],
    "zstd --rm F": ["F"],
    "pigz F": ["F"],
    "function g { rm F; }; g": ["F"],
    "function g() { rm F; }; g": ["F"],
    "sort -uoF F": ["F"],
    "sort -uo F F": ["F"],
    "curl -sSoF https://x/y": ["F"],
    "curl -sSLo F https://x/y": ["F"],
    "curl --remote-name-all https://x/F": ["F"],
    "curl -sO https://x/F?v=1": ["F"],
    "wget -qOF https://x/y": ["F"],
    "wget -N https://x/F": ["x", "F"],
    "wget -P sub -N https://x/F": ["sub/x", "sub/F"],
    "npx -y rimraf@5 F": ["F"],
    "yarn rimraf F": ["F"],
    "pnpm rimraf F": ["F"],
    "pnpm dlx rimraf@5 F": ["F"],
    "pnpm --filter web exec rimraf F": ["F"],
    "yarn prettier --write F": ["F"],
    "python3 -m black F": ["F"],
    "gawk -i inplace '{print}' F": ["{print}", "F"],
    "gawk -iinplace '{print}' F": ["{print}", "F"],
    "shfmt -w F": ["F"],
    "script F": ["F"],
    "script -q F ls": ["F"],
    "script": ["typescript"],
    "rsync -a --remove-source-files F host:/x": ["F"],
    "rsync -a host:x F": ["F", "F/x"],
    "docker cp c:/x F": ["F", "F/x"],
    "docker container cp c:/x F": ["F", "F/x"],
    "kubectl cp -n ns pod:/x F": ["F", "F/x"],
    "aws s3 cp s3://b/x F": ["F", "F/x"],
    "aws s3 mv F s3://b/x": ["F"],
    "aws s3 sync s3://b F": ["F", "F/b"],
    "scp host:x F": ["F", "F/x"],
    "scp -P 22 host:x .": ["x"],
    "env -C sub rm F; rm y": ["sub/F", "y"],
    "env --chdir=sub rm F": ["sub/F"],
    "rimraf a": ["a"],
    "trash a": ["a"],
    "del-cli a": ["a"],
}


@pytest.mark.parametrize("command", NAMED)
def test_what_is_named_is_found(command: str) -> None:
    found = threatened(command, ROOT, ROOT)

    assert found is not None
    assert [path.decode() for path in found] == NAMED[command]


def test_a_pattern_is_known_as_a_pattern() -> None:
    threat = threat_of("rm src/*.py", ROOT, ROOT)

    assert threat is not None
    assert (threat.named, threat.patterns) == ((), (ROOT + b"/src/*.py",))


UNNAMED = [
    "git reset --hard", "git checkout .", "git checkout -- a.py", "git clean -fdx", "git stash", "git stash pop",
    "git restore a", "git rebase main",
    "git merge x", "git pull", "git -C sub reset --hard", "git -c a=b checkout x", "git rm a", "git switch x",
    "hg revert --all", "svn revert .",
    "$CMD a", "rm $X", "rm *", "rm -rf .", "rm -rf ..", "rm -rf /", "rm -rf /home/dev", "rm ~/x", "rm $(cat list)",
    "cd $DIR && rm a", "cd - && rm a",
    "find . -delete", "find . -name '*.o' -delete", "find . -exec rm {} ;", "find . -exec rm {} +",
    "find src -execdir mv {} x ';'",
    "cat list | xargs rm", "cat list | xargs -n 1 -I F mv F x", "ls | parallel rm", "curl http://x | sh",
    "cat x | sudo bash", "make clean",
    "bash -c \"$X\"", "eval \"$X\"", "tar xf a.tar", "tar -xzf a.tgz", "unzip -o a.zip", "cargo fmt", "black .",
    "prettier --write .",
    "python3 -c 'import shutil; shutil.rmtree(\"x\")'", "python3 - <<EOF\nopen('x','w')\nEOF",
    "node -e 'fs.rmSync(\"x\")'", "python3 -c \"$X\"",
    "alias r='cd sub; rm'; r a",
    "ls | xargs -I{} rm {}", "ls | parallel 'rm {}'", "cpio -id < x", "cpio -i", "7z x a.7z", "unrar x a.rar", "jar xf a.jar",
    "rclone sync a .", "awk 'BEGIN{system(\"rm F\")}'", "awk '{print > \"F\"}' x", "fd -e bin -X rm", "fd -x rm",
    "fd -e bin -x rm {}",
    "fd --exec rm", "ruby -e 'File.delete(\"F\")'", "ruby -rfileutils -e 'FileUtils.rm_rf(\"F\")'", "perl -e 'unlink \"F\"'",
    "perl -we 'unlink \"F\"'", "deno eval 'Deno.removeSync(\"F\")'", "pwsh -c 'Remove-Item F'", "pwsh -Command 'rm F'",
    "php -r 'unlink(\"F\");'", "lua -e 'os.remove(\"F\")'", "node -e 'require(\"fs\").unlinkSync(\"F\")'",
    "python3 -c 'import os; os.system(\"rm F\")'", "sudo node -e 'fs.unlinkSync(\"F\")'", "curl -o $F https://x/y",
    "cat x | python3", "cat x | python3 -", "cat x | sudo python3 -u", "cat x | node", "cat x | perl", "cat x | ruby",
    "cat x | php",
    "python3 < x", "cat <<EOF | python3\nprint(1)\nEOF", "bash <(curl x)", "source <(curl x)", ". <(curl x)", "python3 <(curl x)",
    "bash /dev/stdin < x", "function g { rm \"$1\"; }; g F", "node --eval='fs.rmSync(\"F\")'", "perl -e'unlink \"F\"'",
    "pushd sub; popd; rm F", "ls | xargs -I{} sh -c 'rm {}'", "ls | xargs -I % sh -c 'rm %'", "ls | xargs -IF mv F x",
    "gh pr checkout 1", "git lfs pull", "npm run clean", "yarn clean", "just clean", "make distclean", "rake clobber",
    "split big F", "split big", "csplit -f F big /x/", "csplit -fF big /x/", "split --filter='cat > F' big",
    "mawk '{print $1 > \"F\"}' x", "awk '{print $1 > FILENAME}' x", "awk '{\"rm F\" | getline}' x",
    "echo x > $F", "dd of=$F", "for f in *.c; do mv $f $f.bak; done",
]  # fmt: skip


@pytest.mark.parametrize("command", UNNAMED)
def test_what_cannot_be_told_counts_as_a_danger(command: str) -> None:
    assert threatened(command, ROOT, ROOT) is not None


def test_a_danger_outside_of_the_workspace_is_none() -> None:
    assert threatened("rm x", b"/home/dev/other", ROOT) is None
    assert threatened("rm ../project/x", b"/home/dev/other", ROOT) == (b"x",)
    assert threatened("rm x", ROOT + b"/sub", ROOT) == (b"sub/x",)


def test_bytes_that_are_no_text_are_still_a_path() -> None:
    command = b"rm caf\xe9".decode("utf-8", "surrogateescape")

    assert threatened(command, ROOT, ROOT) == (b"caf\xe9",)


def test_a_command_too_long_to_read_is_a_danger() -> None:
    assert threatened("echo " + "x" * 100_000, ROOT, ROOT) == ()


def test_a_long_here_document_is_passed_over_quickly() -> None:
    body = "rm -rf everything\n" * 100_000

    assert threatened(f"cat > notes.md <<'EOF'\n{body}EOF\nls", ROOT, ROOT) == (b"notes.md",)


def test_nesting_without_end_is_a_danger() -> None:
    command = "ls"
    for _ in range(30):
        command = f"bash -c {command!r}" if "'" not in command else f"echo $({command})"

    assert threatened("echo $(" * 50 + "ls" + ")" * 50, ROOT, ROOT) == ()


PIECES = st.sampled_from(
    ["rm", "a", " ", "\n", ";", "&&", "|", "(", ")", "{", "}", "<<EOF", "EOF", "<", ">", ">>", "'", '"', "`", "$(",
    "${", "$", "\\", "*", "~", "#", "-c",
    "bash", "find", "-exec", "xargs", "cd", "=", "[[", "]]", "((", "))", "2>&1", "&", "한", "\t", "-", "sudo", "git",
    "reset", "1", "<(", "<<<", "<<-"],
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_text_is_too_odd_to_read(text: str) -> None:
    threatened(text, ROOT, ROOT)


@given(st.text(max_size=60))
def test_whatever_is_quoted_is_one_word_that_means_itself(text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"

    words = [token for token in tokenize(f"rm {quoted}") if isinstance(token, Word)]

    assert [word.text for word in words] == ["rm", text]
    assert all(word.is_sure for word in words)


def test_redirections_of_descriptors_replace_nothing() -> None:
    tokens = [token for token in tokenize("ls 2>&1 1>&- <a 3<>b >&2 &>c") if isinstance(token, Redirection)]

    assert [token.replaces for token in tokens] == [False, False, False, True, False, True]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ('F=big.bin; rm -f "$F"', ["big.bin"]),
        ("F=big.bin && rm -f ${F}", ["big.bin"]),
        ('D=models; F="$D/big.bin"; rm "$F"', ["models/big.bin"]),
        ("rm -rf $(pwd)/big.bin", ["big.bin"]),
        ('rm -rf "$(pwd)/big.bin" `pwd`/b', ["big.bin", "b"]),
        ("cd models && rm $PWD/big.bin", ["models/big.bin"]),
        ("for f in big.bin b; do rm -f $f; done", ["big.bin", "b"]),
        ("for f in a b; do mv $f.x $f.y; done", ["a.x", "b.x", "a.y", "b.y"]),
        ("F=big.bin; echo > $F", ["big.bin"]),
        ("X=$(cd models && pwd); rm big.bin", ["big.bin"]),
        ("bash -c 'cd models'; rm big.bin", ["big.bin"]),
    ],
)
def test_what_the_command_itself_gives_a_variable_is_read(command: str, named: list[str]) -> None:
    threat = threat_of(command, ROOT, ROOT)

    assert threat is not None and not threat.is_vague
    assert [path.decode() for path in threat.named] == named


def test_a_loop_through_a_pattern_means_what_the_pattern_means() -> None:
    threat = threat_of('for f in *.bin; do rm "$f"; done', ROOT, ROOT)

    assert threat is not None and not threat.is_vague
    assert threat.patterns == (ROOT + b"/*.bin",)


@pytest.mark.parametrize(
    "command",
    [
        'rm "$F"',
        'rm "$F"; F=a',
        "F=a; F=$(next); rm $F",
        "F=a; read F; rm $F",
        "F=a; while x; do rm $F; F=b; done",
        "F=a rm $F",
        "F='a b'; rm $F",
        "F=~/a; rm $F",
        "F=a; . ./more; rm $F",
        "F=a; rm ${F:-b}",
        "F=a; for F in $(ls); do rm $F; done",
        "for f in $(ls); do rm $f; done",
        "PWD=/x; rm $(pwd)/y",
        "ls big.bin | xargs rm",
        "ls | xargs -I{} sh -c 'rm {}'",
        "ls | xargs -I % sh -c 'rm %'",
        "pushd sub; popd; rm F",
        "cat x | python3",
        "bash <(curl x)",
        'function g { rm "$1"; }; g F',
        "tar xf a.tar",
        "tar -zxf a.tgz",
        "tar -C sub -xzf a.tgz",
        "tar --extract -f a.tar",
        "unzip -qo a.zip",
    ],
)
def test_what_cannot_be_read_for_sure_may_mean_anything(command: str) -> None:
    threat = threat_of(command, ROOT, ROOT)

    assert threat is not None and threat.is_vague


@pytest.mark.parametrize(
    "command", ["tar cf - src", "tar tf x.tar", "tar -tf x.tar", "tar -df x.tar", "unzip -l o.zip"]
)
def test_an_archive_that_goes_elsewhere_or_is_listed_destroys_nothing(command: str) -> None:
    assert threatened(command, ROOT, ROOT) is None


@pytest.mark.parametrize(
    "command",
    [
        "find . -name '*.pyc' -delete",
        "find . -type f -iname '*.py[co]' -delete",
        "find sub -name '*.sqlite3' -delete",
        "find . -name .DS_Store -type f -print -delete",
    ],
)
def test_find_with_the_ending_of_ordinary_files_spares_git_s_own_folders(command: str) -> None:
    threat = threat_of(command, ROOT, ROOT)

    assert threat is not None and threat.is_certain
    assert threat.spared == (frozenset((b"sub",)) if "sub" in command else frozenset((b"",)))


@pytest.mark.parametrize(
    "command",
    [
        "find . -delete",
        "find . -delete -name '*.pyc'",
        "find . -name x -o -name '*.pyc' -delete",
        "find . ! -name '*.pyc' -delete",
        "find . -not -name '*.pyc' -delete",
        "find . -name '*.idx' -delete",
        "find . -name 'pac*.pa[a-z]' -delete",
        "find . -name 'HEAD' -delete",
        "find . -name '*.?' -delete",
        'find . -name "*.$X" -delete',
        "find . -name '*.pyc' -delete; rm -rf .",
        "rm -rf .; find . -name '*.pyc' -delete",
        "find sub -name '*.pyc' -delete; rm -rf sub",
        "rm -rf sub; find sub -name '*.pyc' -delete",
        "find . -name '*.pyc' -fprint x -delete",
    ],
)
def test_other_deletions_by_find_do_not_spare_them(command: str) -> None:
    threat = threat_of(command, ROOT, ROOT)

    assert threat is not None and threat.is_certain
    assert not threat.spared


MENTIONED = {
    "mytool F": ["F"],
    "git bundle create F --all": ["F"],
    "git -c a.b=c bundle create -q F main": ["F"],
    "./tool.sh a F": ["a", "F"],
    "mytool --file=F": ["F"],
    "mytool --output F": ["F"],
    "mytool -oF": ["F"],
    "cd sub && mytool ../F": ["F"],
    "sudo mytool F": ["F"],
    "python3 tool.py F": ["F"],
    "bash tool.sh F": ["F"],
    "g() { cat x; }; g F": ["F"],
    "npx some-tool@2 F": ["F"],
    "pytest --output=F": ["F"],
    "pytest --out-file F": ["F"],
    "git diff --output=F": ["F"],
    "git archive -o F HEAD": ["F"],
    "terraform plan -out=F": ["F"],
    "make of=F": ["F"],
    "biome check --write F": ["check", "F"],
    "terraform fmt F": ["fmt", "F"],
    "source tool.sh F": ["F"],
    "bash -c 'cat \"$1\"' _ F": ["F"],
    "npx tsx tool.ts F": ["F"],
    "go run ./cmd F": ["F"],
    "cargo run --bin a -- F": ["F"],
    "time -p mytool F": ["mytool", "F"],
    "ar rcs F x.o": ["rcs", "F", "x.o"],
    "jar cf F x": ["cf", "F", "x"],
    "jar --update --file=F x": ["F", "x"],
    "pax -w -f F x": ["F", "x"],
    "sed 'w F' x": ["F"],
    "sed -n -e '/a/w F' x": ["F"],
    "sed 's/a/b/wF' x": ["F"],
    "mytool sub/ /etc/x https://x/y $X *.c": ["sub"],
}


@pytest.mark.parametrize("command", MENTIONED)
def test_what_an_unknown_program_or_an_output_option_is_given_is_mentioned(command: str) -> None:
    threat = threat_of(command, ROOT, ROOT)

    assert threat is not None and not threat.is_certain
    assert [path.decode() for path in threat.mentioned] == MENTIONED[command]
    assert threatened(command, ROOT, ROOT) is None


def test_what_is_mentioned_beside_a_danger_is_no_danger_by_itself() -> None:
    threat = threat_of("rm a; mytool a b", ROOT, ROOT)

    assert threat is not None and threat.is_certain
    assert (threat.named, threat.mentioned) == ((b"a",), (b"b",))


def test_the_files_of_a_split_are_meant_by_their_beginning() -> None:
    threat = threat_of("split -b 1m big out/F", ROOT, ROOT)

    assert threat is not None and not threat.is_vague
    assert threat.patterns == (ROOT + b"/out/F*",)


@pytest.mark.parametrize(
    "start", ["mytool ", "sed ", "tar -cf ", "python3 ", "wget -N ", "awk ", "mytool -o", "rsync "]
)
def test_many_words_are_read_in_little_time(start: str) -> None:
    from time import process_time

    began = process_time()
    threat_of(start + "w " * 30_000, ROOT, ROOT)
    threat_of(start + "-m " * 20_000, ROOT, ROOT)
    threat_of(start + "'" + "w" * 60_000 + "'", ROOT, ROOT)

    assert process_time() - began < 5
