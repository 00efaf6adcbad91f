"""Which files are secret by their name, and which byte strings in a content call for a closer look (docs/guides/secrets.md)."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterator

from keepfast.secrets.services import BEGINNINGS, OTHERS

TEXT_LIMIT = 256 << 10
"""Larger files are judged by their name alone."""

_NAMES = """
    .env .envrc .netrc _netrc .pgpass .npmrc .pypirc .htpasswd .git-credentials .dockercfg .my.cnf .mylogin.cnf .boto .s3cfg
    .vault-token .terraformrc .secrets .credentials .passwd credentials secrets
    client_secret.json client_secrets.json service-account.json service_account.json serviceaccount.json
    serviceaccountkey.json application_default_credentials.json id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519
    id_ed25519_sk master.key production.key kubeconfig key.properties keystore.properties local.settings.json
    .bash_history .zsh_history .psql_history .mysql_history .python_history
"""
_STEMS = "credentials", "secrets", "secret"
_TELLING_ENDINGS = "json jsonc json5 yaml yml toml ini cfg conf config cnf properties xml plist csv tsv txt db"
"""A file named by one of `_STEMS` is secret with these extensions; sources (`secrets.py`) and documents (`secrets.md`) are not."""
NAMES = frozenset(
    [
        *_NAMES.encode("ascii").split(),
        *[f"{stem}.{ending}".encode("ascii") for stem in _STEMS for ending in _TELLING_ENDINGS.split()],
    ]
)
ENDINGS = (
    b".env", b".kdbx", b".kdb", b".ppk", b".p12", b".pfx", b".pkcs12", b".jks", b".jceks", b".bks", b".keystore", b".tfvars",
    b".tfvars.json", b".tfstate", b".tfstate.backup", b".ovpn", b".agekey", b".pgpass", b".netrc", b".htpasswd",
)  # fmt: skip
EXAMPLE_ENDINGS = (b"example", b"sample", b"template", b"dist", b"defaults", b"schema", b"tmpl")
"""`.env.example` and the like are not secret by their name; their contents are checked all the same."""
KEYS = (b".pem", b".key", b".p8", b".der")
LAST_ENDINGS = frozenset(ending.rpartition(b".")[2] for ending in (*ENDINGS, *KEYS))
"""The last extensions of `ENDINGS` and `KEYS`."""
OPEN_ENDINGS, OPEN_NAMES = (b".pub", b".md", b".lock"), (b"known_hosts", b"authorized_keys")
_BACKUPS = b"bak backup old orig save swp swo swn tmp copy".split()
BACKUPS = tuple([joint + word for word in _BACKUPS for joint in (b".", b"-", b"_", b" ")])
"""Endings of backups that editors, tools or people make beside a file; numbers and `~` may follow."""
BACKUP_TAILS = frozenset([word[-3:] for word in _BACKUPS])
SWAPS = (b".swp", b".swo", b".swn")
"""Vim's swap files; their names also begin with a dot."""
NUMBERS, MAX_BACKUPS = b"0123456789", 4
SECRET, KEY, SETTINGS = 1, 2, 4
FOLDERS = frozenset((b".ssh", b".gnupg", b".aws", b".azure", b".gcloud", b".kube", b".docker"))

_CONFIG_NAMES = """
    dockerfile makefile jenkinsfile procfile vagrantfile config configuration settings .profile .bashrc .zshrc .bash_profile
    .zprofile .zshenv .gitconfig .curlrc .wgetrc .condarc .yarnrc .bowerrc .babelrc .s3cmd .travis.yml .gitlab-ci.yml
"""
CONFIG_NAMES = frozenset(_CONFIG_NAMES.encode("ascii").split())
_CONFIG_ENDINGS = """
    json jsonc json5 ndjson jsonl yaml yml toml ini cfg conf config cnf properties xml plist tf hcl sh bash zsh fish ps1 bat
    cmd env local dev prod production staging secret secrets txt log http rest curl sql csv netrc rc editorconfig
    service socket timer compose dockerfile gradle kts sbt nix ipynb har postman_collection example sample template dist md
"""
CONFIG_ENDINGS = frozenset(_CONFIG_ENDINGS.encode("ascii").split())

LABELS = """
    password passwd passphrase passcode secret token credential api_key app_key access_key account_key private_key signing_key
    encryption_key session_key master_key client_key service_key license_key shared_key connection_string webhook_url
"""
"""Labels beside which a value is likely to be a secret, in any case; `_` stands for any of `JOINTS`."""
JOINTS = b"", b"_", b"-", b"."
SHORT_LABELS = "pass pwd dsn sas auth bearer"
"""Labels that count only as whole words."""
AFTER_SHORT_LABEL = b"=", b":", b" =", b" :", b'"', b"'", b"`", b">", b"<", b"\t"
"""What follows a short label if a value comes next."""
OTHER_LABELS = (
    b"authorization", b"cookie:", b"auth_key", b"auth-key", b"authkey", b"signature=", b"?sig=", b"&sig=", b"bearer ", b"sshpass ",
    b"redis-cli", b"curl -u", b"--user ", b"mysql -", b"mysqldump -", b"mysqladmin -",
)  # fmt: skip
"""What stands before secret values in headers, URLs and commands."""
SCHEMES = "tp ps es ql db rv is ss qp sh ap er it ts ka se ch tt s5 s4 g2 s3 h2 b2 4j"
"""Last two letters of URL schemes with passwords: http, https, postgres, mysql, mongodb, …+srv, redis, amqp, ssh, ldap …"""
BASE64_MARKS = tuple(
    [
        word.encode("ascii")
        for word in (*LABELS.split(), *LABELS.upper().split(), "Password", *[f"{end}://" for end in SCHEMES.split()])
    ]
)
"""Labels and URLs that are searched for inside base64."""
ESCAPES = tuple(rb"\u00" + bytes([digit]) for digit in b"234567")
"""Beginnings of escapes (`\\u0041`): only a closer look decodes them."""
QUOTED_PRINTABLE = (
    b"-Encoding: quoted-printable", b"-encoding: quoted-printable", b"-Encoding: Quoted-Printable", b"ENCODING=QUOTED-PRINTABLE",
)  # fmt: skip
"""How mails and vCards declare quoted-printable, in which a line may break anywhere."""
_CODES = {
    f"{code:02{case}}"
    for code in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~"
    for case in "xX"
}
PERCENT = tuple([f"%{code}".encode("ascii") for code in sorted(_CODES)])
"""Percent-encoded letters. Signs that are encoded in most URLs are left out: those are searched for within key prefixes."""
ENTITIES = (
    b"&#95;", b"&#x5f;", b"&#x5F;", b"&lowbar;", b"&#45;", b"&#x2d;", b"&#x2D;", b"&#46;", b"&#x2e;", b"&#x2E;", b"&period;",
    b"&#58;", b"&#x3a;", b"&#x3A;", b"&colon;", b":&#47;&#47;", b":&#x2f;&#x2f;", b":&#x2F;&#x2F;",
    b"&#126;", b"&#x7e;", b"&#x7E;", b"&#61;", b"&#x3d;", b"&#x3D;", b"&equals;", b"&#43;", b"&#x2b;", b"&#x2B;", b"&plus;",
    b"&#36;", b"&#x24;", b"&dollar;",
)  # fmt: skip
"""The signs within keys and URLs, as entities of HTML and XML."""
CODED_ADDRESSES = (b"%3a//", b"%3A//")
"""A URL that is percent-encoded except its slashes."""
CERTAIN_BYTES = 5
SHORT_SIGN = 3
"""Signs up to this length are not searched for in base64; base64 that decodes to text is searched in decoded form."""
MIN_CODED, MAX_UNPRINTABLE = 24, 4
"""Base64 counts as text from `MIN_CODED` letters on, if at most `MAX_UNPRINTABLE` of their bytes are not printable."""
STANDARD = bytes.maketrans(b"-_", b"+/")
"""Translates URL-safe base64 to the standard alphabet."""
PRINTABLE = bytes([9, 10, 13, *range(32, 127)])
DECODED_BEHIND = (
    b"-enc ",
    b"-Enc ",
    b"-ec ",
    b"-EncodedCommand ",
    b"-encodedCommand ",
    b"-encodedcommand ",
    b"Basic ",
    b"basic ",
)
"""Base64 that follows one of these is always decoded."""
FREQUENT = "secret_", "napi_", "secret-", "live_", "sig=", "oauth:"
"""A key prefix of at least `CERTAIN_BYTES` bytes calls for a closer look; a shorter one, or one of `FREQUENT`, only if the rest
of a key could follow."""
REST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~/+=%:&#;\\"
"""Characters of keys, and of the entities and escapes that may stand for them."""
REST_LENGTH = 16
SLASHED = "_-.~:=+$!"
"""Signs within keys that may be escaped with a backslash."""
RESERVED, UNRESERVED = ":=+$!/", "_-.~"
"""Signs that URLs always percent-encode, and those that they may."""
SIGN, WORD, ADDRESS, SIGN_BEFORE_KEY, IN_BASE64, AT_WORD_START = 1, 2, 4, 8, 16, 32
"""Kinds of marks: a sign; a word, in any case of its letters; the beginning of an address, which counts where a password stands
in front of the host; a sign that counts where a key could follow. Besides, or alone: as it looks inside of base64. Besides: it
does not count inside of a longer word."""


def is_secret_by_name(path: bytes) -> bool:
    """Return whether the file is secret by its name (a key file at least until its content was checked)."""
    return bool(kind_by_name(path) & (SECRET | KEY))


def kind_by_name(path: bytes) -> int:
    """Return `SECRET` if the file is secret whatever it holds, `KEY` if it is secret unless its content shows otherwise.

    `SETTINGS`: a kind of file in which people put passwords; it is searched for labels too, not only for well-known keys.
    0: none of these. A backup (`id_rsa.bak`, `.env.old.2`, `.netrc~`) is of the same kind as its original.
    """
    name = path[path.rfind(b"/") + 1 :].lower()
    dot = name.rfind(b".")
    ending = name[dot + 1 :]
    otherwise = SETTINGS if dot <= 0 or ending in CONFIG_ENDINGS or name in CONFIG_NAMES else 0
    if name[-3:] in BACKUP_TAILS or name[-1:] in b"0123456789~#":
        original = _without_backup(name)
        if original != name:
            return _kind_of_backup(path, name, original, otherwise)
    # Called for every saved file: nearly all return here.
    if name not in NAMES and ending not in LAST_ENDINGS and b"/." not in path and path[:1] != b".":
        return otherwise
    if name in NAMES or name.endswith(ENDINGS):
        return SECRET
    if name.endswith(KEYS):
        return KEY
    if name.startswith((b".env.", b".env-")) and not name.endswith(EXAMPLE_ENDINGS):
        return SECRET
    if _is_in_secret_folder(path):
        return otherwise if name.endswith(OPEN_ENDINGS) or name in OPEN_NAMES else SECRET
    return otherwise


def _kind_of_backup(path: bytes, name: bytes, original: bytes, otherwise: int) -> int:
    """Return the kind of the file of which this is a backup; the dot before a swap file may be its own."""
    folder = path[: path.rfind(b"/") + 1]
    kind = kind_by_name(folder + original)
    if not kind & (SECRET | KEY) and original[:1] == b"." and name.endswith(SWAPS):
        kind = kind_by_name(folder + original[1:])
    # A backup of a file without an extension need not be one of settings: `ls.1` is a manual page.
    return kind if kind & (SECRET | KEY) or b"." in original[1:] else otherwise


def _is_in_secret_folder(path: bytes) -> bool:
    """Return whether the file is in a folder such as `.ssh`, or in a subfolder of one."""
    folder = path.rpartition(b"/")[0]
    return (b"/." in folder or folder[:1] == b".") and not FOLDERS.isdisjoint(folder.split(b"/")[-2:])


def _without_backup(name: bytes) -> bytes:
    """Return the name of the file of which this is a backup; the same name if it is none."""
    for _ in range(MAX_BACKUPS):
        base = name.rstrip(b"~")
        if base[:1] == b"#" == base[-1:]:
            base = base[1:-1]
        unnumbered = base.rstrip(NUMBERS).rstrip(b"~")
        if unnumbered.endswith(BACKUPS):
            base = unnumbered[: max([unnumbered.rfind(joint) for joint in (b".", b"-", b"_", b" ")])]
        elif unnumbered != base and unnumbered[-1:] in (b".", b"-", b"_"):
            base = unnumbered[:-1]
        if base == name or not base:
            return name
        name = base
    return name


def marks() -> Iterator[tuple[bytes, int]]:
    """Yield the byte strings that contents are searched for, each with its kind: key prefixes, labels, URLs, encoded forms."""
    for signs, *_ in BEGINNINGS.values():
        for sign in signs.split():
            kind = AT_WORD_START | (SIGN if len(sign) >= CERTAIN_BYTES and sign not in FREQUENT else SIGN_BEFORE_KEY)
            yield sign.encode("ascii"), kind | (IN_BASE64 if len(sign) > SHORT_SIGN else 0)
            yield from _escaped_forms(sign, kind, RESERVED)
    for decoded in DECODED_BEHIND:
        yield decoded, SIGN_BEFORE_KEY
    for name, (beginnings, _) in OTHERS.items():
        for sign in beginnings if name != "url-password" else ():
            kind = SIGN if len(sign) > 3 and sign not in FREQUENT else SIGN_BEFORE_KEY
            yield sign.encode("ascii"), IN_BASE64 | kind
            yield from _escaped_forms(sign, kind, RESERVED + UNRESERVED)
    for letter in b"abcdefghijklmnopqrstuvwxyz0123456789\\":
        yield bytes([letter]) + b"://", ADDRESS
    yield rb":\/\/", ADDRESS
    for coded in CODED_ADDRESSES:
        yield coded, ADDRESS
    for coded in (b"%3A%2F%2F", b"%3a%2f%2f"):
        yield coded, SIGN
    for word in label_marks():
        yield word, WORD
    for inside in BASE64_MARKS:
        yield inside, IN_BASE64
    for escape in (*ESCAPES, *ENTITIES, *QUOTED_PRINTABLE):
        yield escape, SIGN
    for escape in PERCENT:
        yield escape, SIGN_BEFORE_KEY


def _escaped_forms(sign: str, kind: int, coded: str) -> Iterator[tuple[bytes, int]]:
    """Yield how Java's properties, Markdown, a shell and a URL write a sign, if they write it differently."""
    ways = (
        [f"\\{letter}" if letter in ":=" else letter for letter in sign],
        [f"\\{letter}" if letter in SLASHED else letter for letter in sign],
        [f"\\{letter}" if letter == "_" else letter for letter in sign],
        [f"%{ord(letter):02X}" if letter in coded else letter for letter in sign],
        [f"%{ord(letter):02x}" if letter in coded else letter for letter in sign],
    )
    for written in dict.fromkeys(["".join(way) for way in ways]):
        if written != sign:
            yield written.encode("ascii"), kind


def label_marks() -> list[bytes]:
    """Return the labels beside secrets, in lower case."""
    parts = [word.encode("ascii").split(b"_") for word in LABELS.split()]
    joined = [joint.join(part) for part in parts for joint in JOINTS[: 4 if len(part) > 1 else 1]]
    short = [word.encode("ascii") for word in SHORT_LABELS.split()]
    return [
        *joined,
        *[word + sign for word in short for sign in AFTER_SHORT_LABEL],
        *[b"_" + word for word in short],
        *OTHER_LABELS,
    ]


def packed_marks() -> bytes:
    """Return the marks for the compiled search: length, kind and bytes of each."""
    return b"".join([bytes([len(mark), kind]) + mark for mark, kind in marks()])


def base64_forms(sign: bytes) -> list[tuple[bytes, int]]:
    """Return the base64 forms of a text at each of its three alignments, without those that are too short to tell."""
    pieces = []
    for shift in range(3):
        coded = b2a_base64(bytes(shift) + sign, newline=False).rstrip(b"=")
        # The first characters hold bits of what comes before, the last one may hold bits of what comes after.
        first = (0, 2, 3)[shift]
        last = len(coded) - (1 if (shift + len(sign)) % 3 else 0)
        if last - first >= 5:
            pieces.append((coded[first:last], SIGN))
        elif last - first == 4:  # few letters count where they begin what is coded, or where a key could follow
            pieces.append((coded[first:last], SIGN_BEFORE_KEY | AT_WORD_START if shift == 0 else SIGN_BEFORE_KEY))
    return pieces
