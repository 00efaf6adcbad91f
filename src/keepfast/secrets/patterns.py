"""Patterns of secrets: values beside labels, headers, options, URLs; and of what only looks like a secret."""

from __future__ import annotations

from keepfast.secrets import services
from keepfast.secrets.lazy_pattern import lazy
from keepfast.secrets.marks import LABELS, SHORT_LABELS
from keepfast.secrets.marks import SLASHED as SIGNS

LOGIN_BEHIND = lazy(services.URL_LOGIN_REST)

_WHOLE = "|".join([word.replace("_", "[_.-]?") for word in LABELS.split()])
_SHORT = SHORT_LABELS.replace("auth", "auth(?!or(?!iz))(?:[_.-]?key)?").replace(" ", "|")
_NAME = rf"(?:{_WHOLE}|(?:(?<![A-Za-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:{_SHORT}))"
BEGINNINGS = tuple(
    {word.partition("_")[0]: 0 for word in (*LABELS.split(), *SHORT_LABELS.split()) if not word.startswith("passw")}
)
"""The beginnings of all labels in `_NAME`, in lower case."""
_QUOTE = r"(?:\\{0,3}[\"'`])"
_LABEL = rf"(?P<name>{_NAME}(?:[_.-]?[a-z0-9]{{1,12}}){{0,2}})"
_QUOTED = r"(?P<quote>\\{0,3}[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\r\n]){1,4096})(?P=quote)"
_BARE = r"(?P<bare>[^\s\"'`<>,;&|(){}\[\]]{3,4096})"
# `"db_password": "…"`, `PASSWORD=…`, `password: …`, `--token …`, `<password>…</password>`, `password("…")`, `password,…`, also
# inside escaped JSON, and with the value on the next line.
ASSIGNED = lazy(
    rf"(?i){_LABEL}(?:{_QUOTE}|\*\*|__)?\]?(?:[ \t]{{5,40}}(?=[:=])|[ \t]{{0,4}})"
    rf"(?P<sign>:=|=>|==?|:|>|,|\((?=[\"'`])|[ \t]is:?(?=[ \t])|[ \t])(?:\*\*)?(?:(?<=[:=])[ \t]{{5,40}}|[ \t]{{0,4}})"
    rf"(?:\|[-+]?\s{{1,8}}|>[-+]?[ \t]{{0,4}}\r?\n[ \t]{{1,60}}|[brfu](?=[\"'])"
    rf"|(?<=[:=>(])(?P<line>\\?\r?\n[ \t]{{0,60}}(?:-[ \t])?))?(?:{_QUOTED}|{_BARE})"
)
_BETWEEN = r"(?:</(?:key|name|string)>\s{0,60}<|(?:\\{0,3}[\"'`])?[\s,;>{]{0,60}(?:<|\\{0,3}[\"'`]|-[ \t])?)"
_FIELD = (
    r"[A-Za-z_]{2,20}(?:\\{0,3}[\"'`])?\s{0,4}[:=]\s{0,4}"
    r"(?:\"[^\"\r\n]{0,120}\"|'[^'\r\n]{0,120}'|[\w.-]{1,40})[\s,;]{1,60}(?:\\{0,3}[\"'`])?"
)
_VALUE = r"(?:value|string|data|default|content)(?:\\{0,3}[\"'`])?\s{0,4}"
# `name: DB_PASSWORD` and `value: …`, in YAML, in JSON, as attributes, or as `<key>` and `<string>`.
PAIRED = lazy(
    rf"(?i){_LABEL}{_BETWEEN}(?:(?!{_VALUE}[:=]){_FIELD}){{0,3}}{_VALUE}[:=>](?![:=])\s{{0,4}}(?:{_QUOTED}|{_BARE})"
)
# The value first: what stands before the name.
VALUED = lazy(
    rf"(?i)(?<![A-Za-z]){_VALUE}[:=](?![:=])\s{{0,4}}(?:{_QUOTED}|{_BARE})[\s,;]{{1,60}}(?:\\{{0,3}}[\"'`])?(?:name|key|id)"
    r"(?:\\{0,3}[\"'`])?\s{0,4}[:=]\s{0,4}(?:\\{0,3}[\"'`])?[\w.-]{0,60}\Z"
)
NAMED = lazy(rf"(?i){_NAME}")
CELL = lazy(r"\s*[\"']?[A-Za-z_][\w .-]{0,40}[\"']?\s*")
"""The heading of a table's column."""
HEADER = lazy(
    r"(?i)\b(?:authorization|proxy-authorization|x-api-key|x-auth-token|cookie|set-cookie)\\?[\"']?\s*[:=]\s*\\?[\"']?\s*"
    r"(?:(?:bearer|basic|token|digest|apikey|negotiate)\s+)?([^\s\"'\\,;]{6,4096})"
)
SCHEME = lazy(r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9+/._~-]{16,4096}=*)")
# A search for what begins with one letter skips all others, so what must not be in front of it is asked behind it.
OPTION = lazy(
    r"(?i)-(?<![\w-]-)(?:-?(?:user|userpass|proxy-user)[ =]|u[ =]?)[\"']?[^\s:\"'/|()\[\]{}]{1,64}:([^\s\"'@]{3,256})"
)
COMMAND = lazy(
    r"(?i)(?:sshpass\s+-p\s*|mysql[a-z]*\s[^\n|;&]{0,80}?\s?-p|redis-cli\s[^\n|;&]{0,80}?-a\s+)[\"']?([^\s\"'=]{4,256})"
)
LOGIN = lazy(r"(?i)\b(?:login|user)\s+\S+\s+password\s+(\S{3,256})")
PARAMETER = lazy(
    r"(?i)[?&;](?:access_token|refresh_token|id_token|token|key|api_?key|sig|signature|secret|client_secret|password|passwd|pwd|"
    r"auth|code|X-Amz-Signature|X-Amz-Credential|X-Goog-Signature|AWSAccessKeyId)=([^&\s\"'<>#\\]{6,4096})"
)
RANDOM = lazy(r"(?<![A-Za-z0-9+/_=.@-])[A-Za-z0-9+/_-]{32,512}={0,2}(?![A-Za-z0-9+/_=-])")
CODED = lazy(r"[A-Za-z0-9+/_-]{20,}={0,2}")
# Blanks are counted: without an end to them, a page of blanks would be tried from every one of them. Each way begins with
# a character of its own, so that the search skips all others; and blanks that were taken are not given back.
_END = r"[ \t]{0,8}+\\?\r?\n"
_COLOURED = r"\[[0-9;?]{0,20}+[A-Za-z]"
_BREAKS = (
    (r"\n", ""), (r"\r", r"\n"), (r"\\", r"\r?\n"), (" ", r"[ \t]{0,7}+\+?" + _END), (r"\t", r"[ \t]{0,7}+\+?" + _END),
    (r"\+", _END), (r"\"", r"[ \t]{0,8}+[+.]?" + _END), ("'", r"[ \t]{0,8}+[+.]?" + _END), (r"\\", r"\\?r?\\{0,2}n"),
    ("=", r"\r?\n"), (r"\x1b", r"(?<=\n\x1b)" + _COLOURED),
)  # fmt: skip
"""The first character of each kind of break, and the rest of it."""
_NEXT_LINE = r"[ \t>|#*+]{0,60}+(?:\.[ \t]{0,8}(?=[\"']))?[\"']?"
_WRAP = rf"(?:{'|'.join([first + rest for first, rest in _BREAKS])}){_NEXT_LINE}|\x1b{_COLOURED}"
WRAP = lazy(_WRAP)
"""A break within a key that continues in the next line, behind the signs of diffs and quotations, or after a colour."""
_IN_KEY = r"[^\s;,(){}\[\]<>*|\"'`\\]"
_BEHIND = rf"(?<={_IN_KEY}[\s\S])"
JOINT = lazy(
    rf"(?:(?:{'|'.join([first + _BEHIND + rest for first, rest in _BREAKS])}){_NEXT_LINE}|\x1b{_BEHIND}{_COLOURED})"
    rf"(?:{_WRAP})*+(?={_IN_KEY})"
)
"""Such breaks between two characters of which a key may consist: most lines of programs end with another sign."""
COLOUR = lazy(r"(?:\x1b|\\{1,4}(?:x1[bB]|u001[bB]|0?33|[eE]))\[[0-9;?]{0,20}[A-Za-z]")
"""A colour escape of terminals, raw or as written in code: its last letter is no part of what follows."""
_GOES_ON = r"[ \t]{0,8}[+.]?[ \t]{0,8}\\?\r?\n[ \t]{0,60}[+.]?[ \t]{0,8}[\"']"
CONTINUED = lazy(r"\\\r?\n[ \t]{0,60}|\"" + _GOES_ON + r"|'" + _GOES_ON)
"""Line breaks that a shell or a compiler removes: only across these does a value certainly continue."""
ENTITIES = {
    "lowbar": "_", "period": ".", "colon": ":", "equals": "=", "sol": "/", "commat": "@", "plus": "+", "dollar": "$", "excl": "!",
}  # fmt: skip
ESCAPE = lazy(
    r"\\\\*u00([0-7][0-9a-fA-F])|%([2-7][0-9a-fA-F])|&(?:#x0{0,4}([2-7][0-9a-fA-F])|#0{0,4}(3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6])"
    rf"|({'|'.join(ENTITIES)}));"
)
SLASHED = lazy(rf"\\([{SIGNS.replace('-', '')}-])")
"""A sign escaped with a backslash, as in Java's properties, Markdown or a shell."""

# A placeholder is a whole word or phrase: what only begins with one, and goes on like a password, is a password.
_PLAIN = (
    r"(?:a|an|the|me|my|your|own|it|this|that|here|with|to|for|in|of|by|please|password|passwd|passphrase|pass|pwd|pw|secret|token|"
    r"key|api|access|app|db|database|user|username|name|value|real|actual|strong|secure|super|client|auth|private|public|account|"
    r"credentials?|string|id|host|server|service|project|org|company|random|login|admin|root|test|dev|prod|local|data|new|default|"
    r"generated|text|code|hash|salt|jwt|github|gitlab|openai|aws|azure|google|stripe|slack)"
)
_ANY = r"(?-i:[a-z]{1,14}|[A-Z]{1,14}|[A-Z][a-z]{1,14})"
_STANDING = (
    r"(?:your|my|examples?|samples?|dummy|fake|mock(?:ed)?|change|replace|insert|enter|todo|redacted|placeholder)"
    rf"(?:[-_. /:]{{1,2}}{_ANY}(?![A-Za-z])|[-_]?{_PLAIN}(?=[^a-z]|(?-i:[A-Z])|$|{_PLAIN})){{0,10}}[-_. ]?\d{{0,4}}[-_.!<>]{{0,3}}"
)
_VARIABLE = (
    r"\$(?:[({].*[)}].*|env:.*|(?-i:[A-Z_][A-Z0-9_]*|[a-z_]+\d{0,2}(?:_[a-z0-9]+)*"
    r"|[A-Za-z][a-z]+(?:[A-Z][a-z]{2,})*\d{0,2})(?:[^\w].*)?)"
)
PLACEHOLDER = lazy(
    rf"(?i)^(?:[*#•-]{{3,}}.*|[x._]{{3,}}(?:[-_ .:x]|\d{{1,4}}$|(?-i:[a-z]{{1,14}}(?![A-Za-z0-9])))*"
    rf"|<.*|{_VARIABLE}|%(?:\(\w+\))?[a-z]|%\w+%|%\{{.*|"
    rf"\{{[^}}]*\}}.*|\[[^\]]*\].*|.*(?:\$\{{[^}}]*\}}|\{{\{{|<%|\$\().*|{_STANDING}|test(?:ing)?|none|null|nil|undefined|true|false|"
    r"yes|no|on|off|bearer|basic|string|str|bytes|text|password|passwd|secret|token|default|required|optional|string\b.*|unset|empty|hidden|"
    r"encrypted:.*|\d{1,5}|n/a)$"
)
CODE = lazy(
    r"^(?:[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+.*|[A-Za-z_$][\w.$]*\(.*|@.*|self\..*|os\..*|process\..*|env\..*)$"
)
PROSE = lazy(r"^[a-zA-Z][a-z'’-]*[.,:;!?)]*$")
