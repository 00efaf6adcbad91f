"""Redaction takes out what is secret and leaves what is not, whatever the text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.agents.claude.sessions import forked, last_message
from keepfast.runner.domain.prompts import PROTOCOL
from keepfast.secrets import services
from keepfast.secrets.light_redaction import without_secrets
from keepfast.secrets.patterns import ASSIGNED, BEGINNINGS, CONTINUED, ESCAPE, LOGIN_BEHIND, OPTION, WRAP
from keepfast.secrets.redaction import _label_places, _matches_at, find, holds_key, redact

from .planted_secrets import Secret, secrets

PIECES = [secret.value for secret in secrets(3)] + [secret.setting for secret in secrets(3)] + [
    "=", ": ", '"', "'", "\n", "\\\n", " ", "https://", "@", "-p ", "Bearer ", "--token ", "password", "word", "\\u0041", "%41",
    "{", "}", "한글",
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "fix the token parser and the password check",
        "the secret is out: tokens are counted twice",
        "see commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "bump lodash to 4.17.21, sha512 of the lock file changed",
        "add src/keepfast/frontends/cli/session_token_storage.py",
        "Run `keepfast key` to rotate the key: it takes a moment",
        "API key rotation is documented in docs/keys.md",
        "def get_token(self, key: str) -> str: ...",
        "password: ${DB_PASSWORD}",
        "cp-01jd0a8f1a2b3c4d5e6f7g8h9j",
        "체크포인트 생성됨 (토큰 82%)",
        "http://localhost:8080/path?page=2&sort=name",
        "func TestRun_IntegrationV2FetchMalformedMidStreamFails(t *testing.T) {",
        'AuthorEmail: "dev@example.invalid"',
        "type: api_key | env_variable | service | file",
        "one of service | api_key | env_variable",
        "Implement JWT validation in the auth middleware… — commit it",
        "rm -f /tmp/auth.test.exe /tmp/sync.test.exe /tmp/sync…",
        "pytest tests/auth tests/test_login2.py, then cat auth.go src/middleware/auth.go",
        "look for the token ~/notes/AuthNotes.md",
        PROTOCOL,
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "| api_key | k9f-Zq2-Lm7 |",
        "| password | correct_horse_battery | eu |",
        "password | correct_horse_battery",
        "token | Zx9_kLm2pQ | eu",
    ],
)
def test_a_secret_in_the_cell_of_a_table_goes(text: str) -> None:
    assert "[redacted:secret]" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "auth: tests/login2.py/9xk",
        "auth k9f/Zq2Lm7xW",
        "auth /aB3xYz9Qw81",
        "login --password /tmp/foo-bar1",
        "password Zx9_kLm2pQ…",
    ],
)
def test_what_no_path_or_sentence_holds_goes(text: str) -> None:
    assert "[redacted:secret]" in redact(text)


DECLARATIONS = {
    "go": """
	TokenUsage *types.TokenUsage
	TokenUsage *agent.TokenUsage `json:"token_usage,omitempty"`
	Token string `json:"token"`
	AccessToken oauth2.Token
	passwordHash []byte
	Credentials *aws.Credentials
	TokenSource func() (oauth2.TokenSource, error)
	SecretKeyRef *corev1.SecretKeySelector
	Auth AuthenticationConfig
	token, err := parseTokenFromHeader(header)
	tokens map[string]*TokenUsage2
	PrivateKey *rsa.PrivateKey
	Secret **v1.SecretReference
	TokenCh <-chan *TokenUsage
	state.TokenUsage = accumulateTokenUsage(state.TokenUsage, ctx.TokenUsage)
	authorName, authorEmail := getGitAuthorFromRepo(repo)
	TokenUsage: tokenUsageFromMetadata,
""",
    "typescript": """
  token: TokenPayload;
  apiKey?: string;
  accessToken: AccessTokenResponse | null
  secret: Uint8Array
  password: z.string().min(8)
  credentials: AwsCredentialIdentity
  tokenUsage: Record<string, TokenUsage>
  const token = useAuthToken();
  private readonly tokenService: TokenService,
  authToken: typeof authTokens.$inferSelect;
  session_key: SessionKeyRecord[];
  sessionKey = sessionKeyFromCookie;
  tokenType: 'Bearer' | 'Basic'
  auth: FirebaseAuthModule
  passwordInput: HTMLInputElement
""",
    "python": """
    token: TokenInfo | None = None
    secret: SecretStr
    password: Annotated[str, Field()]
    credentials: ServiceAccountCredentials
    self.token = token_provider
    api_key: Optional[SecretStr] = None
    def f(self, token: TokenType, *, secret: SecretBytes = b"") -> TokenPair:
    client = Client(token=auth_token, api_key=settings_api_key)
    connection_string: PostgresDsn
    auth: httpx.BasicAuth
    auth = HTTPBasicAuth
    token: "TokenInfo2"
    token: "TokenInfo | None" = None
    secret: 'SecretStore'
    refresh_token: "Optional[auth.TokenPair]"
    credentials: "dict[str, CredentialsProvider]" = field(default_factory=dict)
    def f(self, token: "JwtEnvelope2", *, secret: "VaultLease" = x) -> "TokenPair":
    async def g(auth: "oauth.DeviceFlow") -> None: ...
""",
    "rust": """
    token: TokenKind,
    secret: &'a SecretString,
    access_token: Option<AccessToken>,
    let token: Token2022Account = x;
    credentials: Arc<dyn CredentialsProvider>,
    password: &str,
    api_key: String,
    token: *const TokenUsage2,
    token: &mut TokenStream2,
    fn parse(token: proc_macro2::TokenStream) -> Token2 {
    secret_key: ed25519_dalek::SigningKey,
    pub auth: AuthenticationMethod,
""",
}


@pytest.mark.parametrize("language", DECLARATIONS)
def test_declarations_of_programs_stay(language: str) -> None:
    """An excerpt is of use only if it is exact: types and variables may be called after what they hold."""
    for line in DECLARATIONS[language].splitlines():
        assert redact(line) == line


@pytest.mark.parametrize(
    "text",
    [
        "password: CorrectHorseBattery",
        "DB_PASSWORD=CorrectHorseBattery",
        "DB_PASSWORD=SuperSecretPassword",
        "mysql --password CorrectHorseBattery",
        "secret = correct_horse_battery",
        "token: hunter2hunter2",
        "password: *Xy7.Qw9!",
        "api_key = Zm9vQmFyQmF6",
        "auth_token: aBcDeFgHiJkL",
        'token: "TokenRing99"',
        'token: "TokenRing"',
        'secret: "SecretSauce42"',
        'secret: "SecretSauce"',
        'password: "PasswordStore1"',
        'password: "SuperSecretPassword"',
        'def login(password: "PasswordStore")',
        '"token": "TokenInfo2"',
        "'secret': 'SecretStore'",
        'token = "TokenInfo2"',
        'token="TokenInfo2"',
        'TOKEN: "ABCDEFGHIJKL"',
        'token: "Xy7Qw9Token"',
        'token: "tokeninfo2"',
        'token: "Tokeninfo2222"',
        'auth: "AuthABcDInfo"',
        'api_key: "Zm9vQmFyQmF6Key"',
        'def f(token: "Hunter2Hunter2")',
        'def f(token: "aBcDeFgHiJkLmN")',
        'def f(token="TokenInfo2")',
    ],
)
def test_a_passphrase_of_words_goes_all_the_same(text: str) -> None:
    assert "[redacted:" in redact(text)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_quick_look_never_misses_what_the_close_one_finds(text: str) -> None:
    assert without_secrets(text) == redact(text)


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_taken_and_spans_are_in_order(text: str) -> None:
    at = 0
    for start, end, kind in find(text):
        assert at <= start < end <= len(text)
        assert kind
        at = end
    redact(text)


@pytest.mark.parametrize("secret", secrets(4), ids=lambda secret: secret.kind)
def test_a_secret_in_the_middle_of_a_log_goes_and_the_log_stays(secret: Secret) -> None:
    text = f"line one\nconnecting with {secret.setting}={secret.value}\nline three is about tokens\n"

    left = redact(text)

    assert secret.value not in left
    assert left.startswith("line one\nconnecting with ") and left.endswith("line three is about tokens\n")


@pytest.mark.parametrize(
    "piece",
    ["password ", "a", "eyJhbGciOi.", "-----BEGIN PRIVATE KEY-----", "=", '"', '\\"', "QUtJQ", "token=", "https://a:b",
     "\n", " ", "\t", "token\n", "-u a", "mysql -x ", "api_key_", "sk-", "%41", "\\u0041", "a\\\n", 'secret: "',
     "authorization: ", "_", "a.", "비밀 "],
)  # fmt: skip
def test_long_repetitions_come_to_an_end(piece: str) -> None:
    """A pattern that tries every beginning with every end would not be done here before the time is up."""
    assert isinstance(redact(piece * (20_000 // len(piece))), str)


@given(st.binary(max_size=400))
def test_any_bytes_are_taken_for_a_transcript(data: bytes) -> None:
    last_message(data)
    list(forked(data.split(b"\n"), "new", [("/a", "/b"), ("", "/c")]))


@given(
    st.lists(
        st.sampled_from(
            [
                *BEGINNINGS, "word", "key", "Key", "_KEY", "-id", "string", "url", "ord", "phrase", "s", "x7", "=", ": ", " ",
                "\n", "'", '"', "hunter22A", "sk3-Xy9/", "PASS", "Token", "apiKEY", "ſecret", "→", "](", ">", "==",
                "é", "가", "🎉", "Ä", "ß", "\u0130", "\u0131", "to\u212aen",
            ]
        ),
        max_size=24,
    ).map("".join)
)  # fmt: skip
def test_looking_where_names_begin_finds_what_looking_everywhere_finds(text: str) -> None:
    assert [match.span() for match in _matches_at(ASSIGNED, text, _label_places(text))] == [
        match.span() for match in ASSIGNED.finditer(text)
    ]


PLAINLY = {
    WRAP: r"(?:(?:[\"'][ \t]{0,8}[+.]?|[ \t]{0,8}\+?)[ \t]{0,8}\\?\r?\n|\\{1,2}r?\\{0,2}n|=\r?\n|\x1b\[[0-9;?]{0,20}[A-Za-z])"
    r"[ \t>|#*+]{0,60}(?:\.[ \t]{0,8}(?=[\"']))?[\"']?",
    CONTINUED: r"\\\r?\n[ \t]{0,60}|[\"'][ \t]{0,8}[+.]?[ \t]{0,8}\\?\r?\n[ \t]{0,60}[+.]?[ \t]{0,8}[\"']",
    ESCAPE: r"\\+u00([0-7][0-9a-fA-F])|%([2-7][0-9a-fA-F])|&#x0{0,4}([2-7][0-9a-fA-F]);|&#0{0,4}(3[2-9]|[4-9]\d|1[01]\d|12[0-6]);"
    r"|&(lowbar|period|colon|equals|sol|commat|plus|dollar|excl);",
    OPTION: r"(?i)(?<![\w-])(?:--?(?:user|userpass|proxy-user)[ =]|-u[ =]?)[\"']?[^\s:\"'/|()\[\]{}]{1,64}:([^\s\"'@]{3,256})",
}
"""The same patterns as one would write them if time did not count."""


@given(
    st.text(alphabet="\"' \t+.\\\r\nrnu0a4F%>|#*=\x1b[;m&x9", max_size=120)
    | st.lists(
        st.sampled_from(["-", "-u", "--user", "--USER=", "a:", "bcd", " ", "proxy-user ", "'", "\n", "-U", "="])
    ).map("".join)
)
def test_patterns_written_for_speed_find_what_the_plain_ones_find(text: str) -> None:
    for quick, plain in PLAINLY.items():
        assert [(match.span(), match.groups()) for match in quick.finditer(text)] == [
            (match.span(), match.groups()) for match in re.finditer(plain, text)
        ]


@given(
    st.lists(
        st.sampled_from(["a", "https", ":", "/", "\\", "//", "://", "@", " ", "x" * 30, '"', ":\\/\\/", "\n"])
    ).map("".join)
)
def test_the_quick_look_for_addresses_never_misses_one_with_a_password(text: str) -> None:
    if re.search(services.pattern("url-password"), text):
        assert LOGIN_BEHIND.search(text)


@pytest.mark.parametrize("above", ["staging\n", "hello\n\n", "a word\r\n", "the key for production\n    "])
@pytest.mark.parametrize("sign", ["ghp_", "glpat-", "npm_"])
def test_a_key_that_is_broken_below_a_word_is_found(above: str, sign: str) -> None:
    """The word above is no part of it."""
    rest = {"ghp_": "a1B2c3D4e5F6g7H8i9J0k1L2M3n4O5p6Q7r8", "npm_": "a1B2c3D4e5F6g7H8i9J0k1L2M3n4O5p6Q7r8"}
    value = rest.get(sign, "a1B2c3D4e5F6g7H8i9J0")
    text = f"{above}{sign}{value[:12]}\n{value[12:]}\nend\n"

    assert holds_key(text)
    assert value[12:] not in redact(text)
