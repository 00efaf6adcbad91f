"""Every kind of key that is known, in every place where keys turn up: found in files, and blotted out of texts."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from pickle import dumps
from random import Random

import pytest

from keepfast.secrets import services
from keepfast.secrets.redaction import redact, unwrapped
from keepfast.workspace import plain_marks
from keepfast.workspace import secret_check as judge
from keepfast.workspace.secret_check import is_secret

from .planted_secrets import MIXED, others, secrets
from .samples import OTHERWISE, PLACES, Sample, files, known, told

SEED = 20261117
MOST = 0.01
"""Of what is planted, so much may lie in the clear: keys that begin in no way of their own, inside of base64."""


def report(planted: Counter[str], clear: Counter[str]) -> str:
    """How many of each kind and each place, where any are left."""
    lines = [f"  {clear[name]:4} of {count:5}  {name}" for name, count in planted.items() if clear[name]]
    share = 100 * clear.total() / planted.total()
    return "\n".join([f"{planted.total() // 2:,} planted, {clear.total() // 2} in the clear ({share:.2f} %)", *lines])


def counted(samples: list[Sample]) -> tuple[Counter[str], Counter[str], list[tuple[str, str]]]:
    planted, clear, left = Counter[str](), Counter[str](), []
    for sample in samples:
        for place, name, content in files(sample):
            planted.update((sample.kind, place))
            if not is_secret(name.encode(), content):
                clear.update((sample.kind, place))
                left.append((sample.kind, place))
    return planted, clear, left


def test_every_known_kind_is_found_in_every_place() -> None:
    samples = [*known(SEED), *told(SEED)]
    assert {sample.kind for sample in samples} >= {*services.kinds()}

    planted, clear, left = counted(samples)

    print(report(planted, clear))
    assert planted.total() // 2 >= 3_855
    assert len(left) <= MOST * planted.total() // 2, left
    plainly = [(kind, place) for kind, place in left if place not in OTHERWISE]
    assert {place for _, place in plainly if not place.startswith("base64")} <= {"broken in two", "quoted-printable"}
    assert not {kind for kind, _ in plainly} & {*services.BEGINNINGS} - {"flutterwave-key", "duffel-token"}
    # The shortest of some kinds, and addresses whose passwords are percent-encoded already.
    assert len(left) - len(plainly) <= 55


@pytest.mark.parametrize(
    "key",
    [
        "patZq7Lm2Xw9RtB4k." + "3f9a1c7e" * 8, "EAABwzLixnjY" + "Zq7Lm2Xw9RtB4kVs" * 9, "EAAGm0PX4ZCps" + "Zq7Lm2Xw9RtB4kVs" * 9,
        "AQEyhmfxLY7LYxVCw0m/n3Q5qf3VaY9UCJ14XWZE03G/k2NFitRvbe4N1XqH1eHaH2AksaEQwV1bDb7kfNy1WIxIIkxgBw==-"
        "y3qzswmlmALhxaVPNjYf74bqPotG12HroatrKA066yE=",
        "pa-Zq7Lm2Xw9RtB4kVsYp6Jn3Hd8GcF5bTrZq7Lm2Xw9Rt", "ftp://me@x.org:Zq7Lm2Xw9RtB@host/",
        "jdbc:oracle:thin:u/Zq7Lm2Xw9@host:1521/x",
        "prod:happy-animal-123|eyJ2MiI6Zq7Lm2Xw9RtB4kVsYp6Jn3Hd8GcF5bTr",
        "dev:happy-animal-123|eyJ2MiI6Zq7Lm2Xw9RtB4kVsYp6Jn3Hd8GcF5bTr",
        "zpka_0123456789abcdef0123456789abcdef_4c1d4a53", "YCMq7Lm2Xw9RtB4kVsYp6Jn3Hd8GcF5bTrZq7Lm2",
        "t1.9euelZqOnJq7Lm2Xw.Zq7Lm2Xw9RtB4kVsYp6Jn3Hd8GcF5bTrZq7Lm2Xw9RtB4kVsYp6Jn3Hd8GcF5bTrZq7Lm2Xw9RtB4kVsYp6Jn3",
        "sc_Zq7Lm2Xw9.Rt4k.acc_Zq7Lm2Xw9RtB." + "Zq7Lm2Xw9RtB4kVs" * 3, "Zq7L" * 13 + "JQQJ99BAACYeBjFXJ3w3AAABACOGxk2Q",
        "Zq7L" * 19 + "+AStZq7LmQ==", "Zq7L" * 19 + "ACDbZq7LmQ==", "Zq7L" * 8 + "Z+ASbAq7Lm2=", "Zq7L" * 10 + "ZqAzSeBq7Lm2",
    ],
)  # fmt: skip
def test_a_key_as_its_service_writes_it_is_found(key: str) -> None:
    assert is_secret(b"a.py", f"connect('{key}')\n".encode())
    assert key not in redact(f"It is {key} there.")


@pytest.mark.parametrize("text", ["mysql -uroot -pZq7Lm2Xw9RtB app\n", "mysqldump -h db -u root -pZq7Lm2Xw9RtB app\n"])
def test_the_password_of_a_database_in_a_command_is_found(text: str) -> None:
    assert is_secret(b"run.sh", text.encode())
    assert "Zq7Lm2Xw9RtB" not in redact(text)


def begun(value: str) -> dict[str, bytes]:
    """The key right behind what begins a line, or a text, and is no part of it."""
    return {
        "comment": f"--{value}\n".encode(),
        "later comment": f"x = 1\n--{value}\n".encode(),
        "first line that a patch takes out": f"-{value}\n".encode(),
        "first line that a patch brings": f"+{value}\n".encode(),
        "pickle": dumps({"a": [value]}, 4),
        "pickle of several": dumps([1, {"name": "bob", "other": value, "last": value}], 5),
    }


def test_a_key_behind_what_begins_a_line_or_a_text_is_found() -> None:
    samples = [sample for sample in known(SEED) if "\n" not in sample.value]
    written = [(sample.kind, way, raw) for sample in samples for way, raw in begun(sample.value).items()]

    clear = [(kind, way) for kind, way, raw in written if not is_secret(b"a.lua", raw)]

    assert len(written) > 1_000
    assert clear == []


@pytest.mark.parametrize(
    "text",
    [
        "/* of a style */\n  --sk-button-background-color-2: #fff;\n  --key-width: 32px;\n",
        "git log --sk-something-with-a-long-name-2\n", "tool --sdk-0b6e1c2d-1111-4222-8333-444455556666\n",
        "clé: naïve résumé, façade-sk-of-some-building-in-2024-or-so\n",
    ],
)  # fmt: skip
def test_an_option_or_a_variable_of_a_style_is_no_comment(text: str) -> None:
    assert not is_secret(b"a.txt", text.encode())
    assert not is_secret(b"a.txt", text.encode("latin-1"))


def interrupted(value: str) -> dict[str, str]:
    """The key with one thing in the middle of it, and with single signs written otherwise."""
    at = len(value) // 2
    code = ord(value[at])
    return {
        "entity": f"{value[:at]}&#{code};{value[at + 1 :]}",
        "entity in hexadecimal": f"{value[:at]}&#x{code:x};{value[at + 1 :]}",
        "colour": f"{value[:at]}\x1b[31m{value[at:]}",
        "tildes": value.replace("~", "&#126;"),
        "equals signs": value.replace("=", "&#61;"),
        "Markdown": value.replace("_", "\\_"),
        "all signs": "".join(letter if letter.isalnum() else f"&#{ord(letter)};" for letter in value),
    }


def test_an_entity_or_a_colour_in_the_middle_of_a_key_hides_none() -> None:
    samples = [sample for sample in known(SEED) if "\n" not in sample.value and len(sample.value) >= 12]
    written = [(sample.kind, way, text) for sample in samples for way, text in interrupted(sample.value).items()]

    clear = [(kind, way) for kind, way, text in written if not is_secret(b"a.py", f"see {text} there\n".encode())]
    shown = [(kind, way) for kind, way, text in written if "[redacted:" not in redact(f"see {text} there")]

    print(f"{len(written):,} planted, {len(clear)} in the clear, {len(shown)} shown")
    assert len(written) > 3_000
    assert (clear, shown) == ([], [])


@pytest.mark.parametrize("name", ["a.py", "a.txt"])
@pytest.mark.parametrize(
    "text",
    [
        "x=%67hp_{}", "x=ghp%5F{}", "x=sk%2D{}", "x=SG%2E{}.{}", "postgres%3A//u%3A{}@db.example.org/app",
        "postgres%3A//u%3A{}%40db.example.org/app", "ghp&#95;{}", "ghp&lowbar;{}", "ghp&#x5F;{}", "postgres:&#x2F;&#x2F;u:{}@h/x",
        r"ghp\_{}", r"sk\-proj\-{}", "ghp_\x1b[m\x1b[K{}", "-x\n+EAAA{}4kVsZq7Lm2Xw9RtB4kVsW1eQ",
    ],
)  # fmt: skip
def test_a_key_of_which_a_sign_is_written_otherwise_is_found(text: str, name: str) -> None:
    secret = "Zq7Lm2Xw9RtB4kVsYp6Jn3Hd8GcF5bTr"
    written = f"see {text.format(secret, secret)} there\n"

    assert is_secret(name.encode(), written.encode())
    assert secret not in redact(written)


@pytest.mark.parametrize(
    "text",
    [
        "aio_read_something_of_the_ring_buffer", "fw_versionofthefirmwareinuse", "st.form_submit_button.something",
        "1/12/2026-10:20:30",
        "urn:ietf:params:oauth:token-type:access_token_jwt", "%s of %40s_and_more_columns_here", "x=%5Fabout_the_names_of_things",
        "snake&#95;case&#95;name_that_goes_on", r"a\_name\_in\_markdown\_that_goes_on",
    ],
)  # fmt: skip
def test_what_only_has_such_signs_is_none(text: str) -> None:
    assert redact(text) == text
    assert not is_secret(b"a.txt", f"see {text} there\n".encode())


@pytest.mark.parametrize("digits", [17, 18, 19, 20])
@pytest.mark.parametrize("first", "123456789")
def test_a_token_of_a_bot_is_found_whatever_its_number(first: str, digits: int) -> None:
    random = Random(f"{first} {digits}")
    number = first + "".join(random.choice("0123456789") for _ in range(digits - 1))
    token = f"{b64encode(number.encode()).decode().rstrip('=')}.GTX6T5.bD8P5hEpIKanr6XkZiNia3nn-3s"

    assert is_secret(b"a.c", f'connect("{token}");\n'.encode())
    assert token not in redact(f"It is {token} there.")


@pytest.mark.parametrize("compiled", [True, False])
def test_base64_that_stands_for_a_text_is_found_in_either_way(compiled: bool) -> None:
    coded = judge.coded if compiled else plain_marks.coded
    text = b64encode(b"x=hf_ and other words of a text").decode()
    sources = ["a" * 40, "src/keepfast/workspace/inner_texts", "-" * 80, "_" * 30, "A" * 99, "QUJD" * 5]
    random = [b64encode(Random(seed).randbytes(48)).decode() for seed in range(400)]

    for before in ("", "x ", "'", "d=", "=" * 30, "word " * 9):
        assert coded(f"{before}{text}' y".encode()) == [len(before)]
    assert coded(rf'"first\n{text}\n"'.encode()) == [len(r'"first\n')]
    assert coded("\n".join(sources).encode()) == []
    assert len(coded("\n".join(random).encode())) < 4
    for size in range(60):
        assert coded(text[:size].encode()) == ([0] if size >= 24 else [])


@pytest.mark.parametrize("seed", range(8))
def test_both_ways_to_look_for_base64_agree(seed: int) -> None:
    random = Random(seed)
    pieces = [
        b64encode(b"words of a text " * 3),
        b"\\n",
        b"\n",
        b"+/-_",
        b"=",
        b"\xff",
        b"name",
        b"\0",
        random.randbytes(30),
    ]
    content = b"".join(random.choice(pieces) for _ in range(400))

    assert judge.coded(content) == plain_marks.coded(content)


def test_a_damaged_database_is_looked_at_as_far_as_it_goes() -> None:
    [(_, name, content)] = [
        file for file in files(Sample("x", "hf_" + "aB3dE6gH9j" * 3 + "kLmN")) if file[0] == "SQLite"
    ]
    assert is_secret(name.encode(), content)

    for seed in range(200):
        random = Random(seed)
        damaged = bytearray(content)
        for _ in range(20):
            damaged[random.randrange(16, len(content))] = random.randrange(256)
        is_secret(b"a.db", bytes(damaged[: random.randrange(16, len(content))]))
        is_secret(b"a.db", content[:16] + random.randbytes(4096))


@pytest.mark.parametrize("seed", [1, 2])
def test_keys_made_by_hand_are_found_in_every_place(seed: int) -> None:
    samples = [Sample(kind, value) for kind, value in others(seed)]

    planted, clear, left = counted(samples)

    print(report(planted, clear))
    assert {kind for kind, _ in left} <= {"azure secret", "mailchimp", "maxmind"}  # they begin in no way of their own
    assert all(place.startswith("base64") for _, place in left) and len(left) < 8


def test_every_known_kind_is_blotted_out_in_every_place() -> None:
    left = [
        (sample.kind, place)
        for sample in (*known(SEED), *told(SEED))
        for place, put in PLACES.items()
        if not place.startswith(("base64", "broken", "as escapes", "percent-encoded", "quoted-printable"))
        and (sample.value in redact(put(sample.setting, sample.value)[1]))
    ]

    assert left == []


def test_a_key_counts_by_what_it_is_wherever_its_file_lies() -> None:
    """Words count in files of settings alone, keys in every file."""
    for secret in (
        secret for secret in secrets(3) if secret.kind in ("github token", "openai key", "huggingface token")
    ):
        for name in ("main.c", "a.py", "a.bin", "b/c.rs", "x"):
            assert is_secret(name.encode(), b"int a;\n" * 500 + f"f({secret.value});\n".encode() + b"int b;\n" * 500)


@pytest.mark.parametrize(
    "text",
    [
        "task-management-of-2-things-in-one", "disk-usage-of-20-gigabytes-left", "{0}AKIA{1}", "{0}ghp_{1}", "x{0}hf_{1}",
        "sk-ssh-ed25519-cert-v01@openssh.com", "GL_FRAMEBUFFER_ATTACHMENT_TEXTURE_3D_ZOFFSET", "secret_manager_of_the_cloud",
        "http://localhost:4873/@scope/name", "ssh://git@github.com:some/repository@v1", "path/to/the/pattern.of_all", "https://example.org:8080/a@b",
    ],
)  # fmt: skip
def test_what_only_begins_like_a_key_is_none(text: str) -> None:
    text = text.format("aZ7q", MIXED[:36])
    assert redact(text) == text
    assert not is_secret(b"a.txt", f"see {text} there\n".encode())


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
def test_a_binary_file_is_not_taken_for_a_text_of_wide_letters(coding: str) -> None:
    for binary in (bytes(range(256)) * 30, b"\x7fELF\0\0\1\1" * 200):
        assert judge._from_utf_16(binary) == b""
    wide = "user = ann\n".encode(coding) * 9
    assert judge._from_utf_16(wide) == b"user = ann\n" * 9


@pytest.mark.parametrize("protocol", range(6))
def test_a_key_in_a_pickle_of_any_protocol_is_found(protocol: int) -> None:
    left = []
    for sample in known(SEED):
        for kept in (sample.value, {"key": sample.value}, [1, sample.value, "x"], {"a": sample.value.encode()}):
            if "\n" not in sample.value and not is_secret(b"cache.pkl", dumps(kept, protocol)):
                left.append(sample.kind)

    assert left == []


def test_lines_are_joined_only_where_a_key_could_continue() -> None:
    program = "int main(void)\n{\n\tcall(one,\n\t     two);\n}\n"

    assert unwrapped(program) == program
    assert unwrapped('key = "abc" +\n      "def";\nghi;\n') == 'key = "abcdef";\nghi;\n'
    assert unwrapped("abc\x1b[0m\n\x1b[32mdef\\\n  ghi") == "abcdefghi"


def test_a_value_ends_where_a_byte_of_zero_stands() -> None:
    dumped = "DB_PASSWORD=changeme\0HOME=/home/bob7\0API_TOKEN=Zq7Lm2Xw9RtB\0LANG=C\0"

    assert redact(dumped) == dumped.replace("Zq7Lm2Xw9RtB", "[redacted:secret]")
    assert is_secret(b"environ", dumped.encode())
    assert not is_secret(b"environ", dumped.replace("Zq7Lm2Xw9RtB", "changeme").encode())


TELLING = {
    "Terraform": ("a.tf", 'variable "{0}" {{\n  default = "{1}"\n}}\n'),
    "Terraform with a type": ("a.tf", 'variable "{0}" {{\n  type = string\n  description = "for it"\n  default = "{1}"\n}}\n'),
    "folded block": ("a.yaml", "{0}: >-\n  {1}\n"), "block": ("a.yaml", "{0}: |+\n  {1}\n"),
    "bold": ("a.md", "- **{0}**: {1}\n"), "bold with its sign": ("a.md", "**{0}:** {1}\n"),
    "sentence": ("a.md", "The {0} is `{1}`.\n"), "sentence without quotes": ("a.txt", "{0} is {1}\n"),
    "table": ("a.md", "| user | {0} |\n|---|---|\n| bob | {1} |\n"),
    "a field between": ("a.json", '[{{"name": "{0}", "type": "PLAINTEXT", "value": "{1}"}}]'),
    "value first": ("a.json", '{{"value": "{1}", "key": "{0}"}}'), "value first in YAML": ("a.yaml", "- value: {1}\n  name: {0}\n"),
    "comma in a cell": ("a.csv", '"user","{0}"\n"Smith, Bob","{1}"\n'), "many blanks": ("a.ini", "{0}          = {1}\n"),
    "in colour": ("a.log", "\x1b[1m{0}\x1b[0m=\x1b[32m{1}\x1b[0m\n"),
}  # fmt: skip


@pytest.mark.parametrize("place", TELLING)
@pytest.mark.parametrize("name", ["password", "DB_PASSWORD", "api_key", "authToken", "client_secret", "PGPASSWORD"])
def test_a_value_is_found_where_its_name_is_told(place: str, name: str) -> None:
    file, text = TELLING[place]
    text = text.format(name, "Zq7Lm2Xw9RtB4kVs")

    assert is_secret(file.encode(), text.encode())
    assert "Zq7Lm2Xw9RtB4kVs" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "The password is required.", "the token is `null` then", "The secret is `client_secret`.", "token is expired",
        "| name | token |\n|---|---|\n| bob | string |\n", 'variable "db_password" {\n  type = string\n  default = ""\n}\n',
        '{"value": "string", "name": "password"}', "**token**: the name of it",
    ],
)  # fmt: skip
def test_a_word_beside_a_telling_one_is_no_value(text: str) -> None:
    assert not is_secret(b"a.md", text.encode())


@pytest.mark.parametrize(
    "address",
    [
        r"postgres:\/\/app:{}@db\/app",
    r"https:\/\/app:{}@db\/a\/b", "https%3A%2F%2Fapp%3A{}%40h%2Fx", "https%3a%2f%2fapp%3a{}%40h",
        r"postgres:\/\/app:a\/{}@db\/app", "s3://app:{}@h/x", "postgresql+psycopg2://app:{}@db", "SOCKS5://app:{}@h",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.js", "a.json", "a.py"])
def test_an_address_is_found_however_it_is_written(address: str, name: str) -> None:
    text = f'x = "{address.format("Zq7Lm2Xw9RtB4k")}"\n'

    assert is_secret(name.encode(), text.encode())
    assert "Zq7Lm2Xw9RtB4k" not in redact(text)


@pytest.mark.parametrize(
    "word",
    [
        "my-password",
        "mypassword", "MY_PASSWORD", "yourPassword", "your_password_here", "<password>", "${VAR}", "$PASSWORD", "$dbPassword",
        "%PASSWORD%",
        "%s", "{password}", "{{ password }}", "[password]", "changeme", "change-me-please", "xxxx", "xxxxxxxx", "***", "...",
        "example", "example-password", "sample_password1", "dummy", "fakepassword", "mock-secret", "replace-me", "replaceme",
        "enter-password-here", "insert_here", "todo", "%(password)s", "$(cat pw)", "$DB_PASS_2", "your-password-123",
    ],
)  # fmt: skip
def test_a_word_that_stands_for_a_password_is_none(word: str) -> None:
    text = f"postgres://app:{word.replace(' ', '')}@db.example.org/app"

    assert redact(text) == text
    assert not is_secret(b"a.md", f"See {text} there.\n".encode())
