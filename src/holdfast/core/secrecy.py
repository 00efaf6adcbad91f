"""Which files are secret by their name, and which marks in a content call for a closer look (docs/guides/secrets.md)."""

from __future__ import annotations

TEXT_LIMIT = 256 << 10
"""Larger files are judged by their name alone."""

_NAMES = """
    .env .envrc .netrc _netrc .pgpass .npmrc .pypirc .htpasswd .git-credentials .dockercfg .my.cnf .mylogin.cnf .boto .s3cfg
    .vault-token .terraformrc .secrets .credentials .passwd credentials credentials.json credentials.yml credentials.yaml
    credentials.xml credentials.toml credentials.ini credentials.csv credentials.db secrets secrets.json secrets.yml
    secrets.yaml secrets.toml secrets.ini secrets.xml secrets.properties secret.json secret.yml secret.yaml secret.toml
    client_secret.json client_secrets.json service-account.json service_account.json serviceaccount.json
    serviceaccountkey.json application_default_credentials.json id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519
    id_ed25519_sk master.key production.key kubeconfig key.properties keystore.properties local.settings.json
    .bash_history .zsh_history .psql_history .mysql_history .python_history
"""
NAMES = frozenset(_NAMES.encode("ascii").split())
ENDINGS = (
    b".env", b".kdbx", b".kdb", b".ppk", b".p12", b".pfx", b".pkcs12", b".jks", b".jceks", b".bks", b".keystore", b".tfvars",
    b".tfvars.json", b".tfstate", b".tfstate.backup", b".ovpn", b".agekey", b".pgpass", b".netrc", b".htpasswd",
)  # fmt: skip
OPENLY = (b"example", b"sample", b"template", b"dist", b"defaults", b"schema", b"tmpl")
"""`.env.example` and the like are there to be read; their contents are judged all the same."""
KEYS = (b".pem", b".key", b".p8", b".der")
LAST = frozenset(ending.rpartition(b".")[2] for ending in (*ENDINGS, *KEYS))
"""What comes behind the last dot of them."""
OPEN_ENDINGS, OPEN_NAMES = (b".pub", b".md", b".lock"), (b"known_hosts", b"authorized_keys")
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

WORDS = (
    b"passw", b"passphrase", b"secret", b"token", b"apikey", b"api_key", b"api-key", b"accesskey", b"access_key",
    b"access-key", b"accountkey", b"credential", b"authorization", b"auth_key", b"private_key", b"privatekey",
    b"signature=", b"_auth", b"pwd=", b"pwd:", b"bearer ",
)  # fmt: skip
"""Words beside which a value is likely to be one, in any case of their letters."""
SIGNS = (
    b"PRIVATE KEY", b"AKIA", b"ASIA", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"glpat-", b"xoxb-",
    b"xoxp-", b"xoxa-", b"xoxr-", b"xoxs-", b"xapp-", b"hooks.slack.com/services/", b"/api/webhooks/", b"sk_live_",
    b'"sk_test_', b"'sk_test_", b"=sk_test_", b": sk_test_", b"rk_live_", b"whsec_", b"sk-ant-", b"sk-proj-",
    b"sk-svcacct-", b"sk-admin-", b"sk-or-v1-",
    b"T3BlbkFJ", b'"sk-', b"'sk-", b"=sk-", b"AIza", b"ya29.", b"GOCSPX-", b"npm_", b"pypi-AgEIcHlwaS5vcmc",
    b"AccountKey=", b"eyJhbGci", b"eyJ0eXAi", b"eyJraWQi", b":AAE", b":AAF", b":AAG", b":AAH", b"dop_v1_",
    b"doo_v1_", b"dor_v1_", b"hvs.", b"hvb.", b"dapi", b"shpat_", b"shpca_", b"shppa_", b"shpss_", b"AGE-SECRET-KEY-1",
    b"lin_api_", b"sbp_", b"dp.pt.", b"dp.st.", b"glsa_", b"glc_", b"sntrys_", b"NRAK-", b"PMAK-", b"ATATT3", b"gsk_",
    b"xai-", b"sq0atp-", b"sq0csp-", b"tfp_", b"atlasv1.", b"rubygems_", b"dckr_pat_", b"ntn_",
    b'"SG.', b"'SG.", b"=SG.", b" SG.", b'"hf_', b"'hf_", b"=hf_", b" hf_", b'"r8_', b"'r8_", b"=r8_", b" r8_",
)  # fmt: skip
"""How keys of well-known services begin: a closer look decides. None is shorter than four bytes."""
CHANCE = (b"EAAA",)
"""Signs that programs' source maps are full of: they count where what follows could be the rest of a key, wrapped or not."""
INSIDE = (b"password", b"PASSWORD", b"api_key", b"API_KEY")
"""Words that count inside of base64."""
REST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_- \t\r\n\\+\"'>|#*%"
REST_LENGTH = 16
ADDRESSES = tuple(bytes([letter]) + b"://" for letter in b"abcdefghijklmnopqrstuvwxyz")
"""Addresses count where a password stands in front of the host."""


TELLING = (
    "pass", "pwd", "secret", "token", "key", "credential", "auth", "bearer", "basic ", "dsn", "sas", "connection", "webhook",
    "cookie", "login", "://", "-u", "-p", "-a ", "=", "private", "\\",
)  # fmt: skip
LONG = 16


def without_secrets(text: str) -> str:
    """Return the text redacted. Most texts need no closer look, and then the patterns are not even loaded."""
    lower = text.lower()
    if not any(sign in lower for sign in TELLING) and not any(len(word) >= LONG for word in lower.split()):
        return text
    from holdfast.core.redact import redact

    return redact(text)


def by_name(path: bytes) -> bool:
    """Is the file secret by its name, if need be until its content is seen?"""
    return bool(named(path) & (SECRET | KEY))


def named(path: bytes) -> int:
    """Return `SECRET` if the file is secret whatever it holds, `KEY` if it is unless it shows that it holds no key.

    `SETTINGS`: it is of the kind in which people put passwords. Then words are looked for, not only well-known keys.
    """
    name = path[path.rfind(b"/") + 1 :].lower()
    dot = name.rfind(b".")
    ending = name[dot + 1 :]
    otherwise = SETTINGS if dot <= 0 or ending in CONFIG_ENDINGS or name in CONFIG_NAMES else 0
    # This is asked of every file that is saved: nearly all of them are let go here.
    if name not in NAMES and ending not in LAST and b"/." not in path and path[:1] != b".":
        return otherwise
    if name in NAMES or name.endswith(ENDINGS):
        return SECRET
    if name.endswith(KEYS):
        return KEY
    if name.startswith((b".env.", b".env-")) and not name.endswith(OPENLY):
        return SECRET
    folder = path.rpartition(b"/")[0]
    if (b"/." in folder or folder[:1] == b".") and not FOLDERS.isdisjoint(folder.split(b"/")[-2:]):
        return otherwise if name.endswith(OPEN_ENDINGS) or name in OPEN_NAMES else SECRET
    return otherwise


def packed() -> bytes:
    """The marks for the compiled search: per mark its length, its kind, and its bytes.

    Kinds: 1 sign, 2 word, 4 address, 8 sign that counts where `REST_LENGTH` bytes of `REST` follow; 16 besides, or alone:
    as it looks inside of base64.
    """
    kinds = (17, SIGNS), (2, WORDS), (4, ADDRESSES), (24, CHANCE), (16, INSIDE)
    marks = [(mark, kind) for kind, those in kinds for mark in those]
    return b"".join([bytes([len(mark), kind]) + mark for mark, kind in marks])


def signs() -> list[bytes]:
    """Signs as they are, and as they look inside of base64, wherever they begin there."""
    return [
        *SIGNS,
        *[form for sign in (*SIGNS, *CHANCE, *INSIDE) for form in in_base64(sign)],
    ]


def in_base64(sign: bytes) -> list[bytes]:
    """What of a text shows in base64 at each of the three places where it can begin, if that is enough to go by."""
    from binascii import b2a_base64

    found = []
    for shift in range(3):
        coded = b2a_base64(bytes(shift) + sign, newline=False).rstrip(b"=")
        # The first characters hold bits of what comes before, the last one may hold bits of what comes after.
        first = (0, 2, 3)[shift]
        last = len(coded) - (1 if (shift + len(sign)) % 3 else 0)
        if last - first >= 5:
            found.append(coded[first:last])
    return found
