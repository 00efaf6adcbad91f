"""How secrets look: keys of well-known services, values beside telling words, and what only looks like one."""

from __future__ import annotations

from holdfast.core.light_re import lazy

# kind → (any of these must be there, the pattern). The pattern's group 1, if it has one, is what is blotted out.
# Keys end where their own alphabet ends; what comes before must not be of it, or half of a longer word would match.
_B, _E = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
KEYS: dict[str, tuple[tuple[str, ...], str]] = {
    "private-key": (
        ("PRIVATE KEY",),
        # Programs that deal with keys name the line alone; a key has a body.
        r"-----BEGIN[A-Z0-9 ]* PRIVATE KEY(?: BLOCK)?-----(?=[\s\S]{0,300}?[A-Za-z0-9+/]{30})"
        r"[\s\S]*?(?:-----END[A-Z0-9 ]* PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    "aws-key": (("AKIA", "ASIA", "ABIA", "ACCA"), _B + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}" + _E),
    "github-token": (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _B + r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    "github-pat": (("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    "gitlab-token": (("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-"), r"gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_-]{20,}"),
    "slack-token": (("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    "slack-webhook": (
        ("hooks.slack.com",), r"hooks\.slack\.com\\?/services\\?/([A-Za-z0-9]+\\?/[A-Za-z0-9]+\\?/[A-Za-z0-9]+)"
    ),
    "discord-webhook": (
        ("discord",), r"discord(?:app)?\.com\\?/api\\?/webhooks\\?/(\d+\\?/[A-Za-z0-9_-]{40,})"
    ),
    "stripe-key": (("_live_", "_test_", "whsec_"), r"(?:(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,})"),
    "anthropic-key": (("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{16,}"),
    "openai-key": (("sk-",), r"(?<![A-Za-z0-9_-])sk-(?:proj-|svcacct-|admin-|or-v1-|None-)?(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}"),
    "google-key": (("AIza",), _B + r"AIza[A-Za-z0-9_-]{35}"),
    "google-oauth": (("ya29.", "GOCSPX-"), r"(?:ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})"),
    "npm-token": (("npm_",), _B + r"npm_[A-Za-z0-9]{36}"),
    "pypi-token": (("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{40,}"),
    "rubygems-key": (("rubygems_",), r"rubygems_[0-9a-f]{40,}"),
    "docker-token": (("dckr_",), r"dckr_[po]at_[A-Za-z0-9_-]{20,}"),
    "sendgrid-key": (("SG.",), _B + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    "twilio-key": (("SK", "AC"), r"(?<![A-Za-z0-9])(?:SK|AC)[0-9a-f]{32}" + _E),
    "mailgun-key": (("key-",), r"(?<![A-Za-z0-9_-])key-[0-9a-f]{32}" + _E),
    "azure-key": (("AccountKey=", "SharedAccessKey="), r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,}={0,2})"),
    "telegram-token": ((":AA",), r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    "digitalocean-token": (("_v1_",), r"do[opr]_v1_[0-9a-f]{64}"),
    "huggingface-token": (("hf_",), _B + r"hf_[A-Za-z0-9]{30,40}" + _E),
    "vault-token": (("hvs.", "hvb.", "hvr."), _B + r"hv[sbr]\.[A-Za-z0-9_-]{20,}"),
    "databricks-token": (("dapi",), _B + r"dapi[0-9a-f]{32}(?:-\d)?" + _E),
    "shopify-token": (("shp",), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    "age-key": (("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    "linear-key": (("lin_api_",), r"lin_api_[A-Za-z0-9]{32,}"),
    "supabase-key": (("sbp_",), _B + r"sbp_[0-9a-f]{40}"),
    "doppler-token": (("dp.pt.", "dp.st.", "dp.ct."), r"dp\.(?:pt|st|ct)\.[A-Za-z0-9._-]{30,}"),
    "grafana-token": (("glsa_", "glc_"), r"(?:glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/=]{32,})"),
    "sentry-token": (("sntrys_",), r"sntrys_[A-Za-z0-9+/=_-]{40,}"),
    "newrelic-key": (("NRAK-",), r"NRAK-[A-Z0-9]{27}"),
    "postman-key": (("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    "atlassian-token": (("ATATT3",), r"ATATT3[A-Za-z0-9_=-]{50,}"),
    "groq-key": (("gsk_",), _B + r"gsk_[A-Za-z0-9]{40,}"),
    "xai-key": (("xai-",), _B + r"xai-[A-Za-z0-9]{60,}"),
    "square-token": (
        ("sq0", "EAAA"),
        r"(?:sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,}|(?<![A-Za-z0-9+/])EAAA[A-Za-z0-9_-]{56,64}(?![A-Za-z0-9+/=_-]))",
    ),
    "replicate-token": (("r8_",), _B + r"r8_[A-Za-z0-9]{37,}"),
    "terraform-token": (("atlasv1.",), r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{50,}"),
    "notion-token": (("ntn_", "secret_"), _B + r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})" + _E),
    "jwt": (("eyJ",), r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    "url-password": (
        ("://", ":\\/", ":/\\"),
        r"(?i)[a-z][a-z0-9+.-]{1,20}:(?:\\?/){2}[^\s/@:\"'<>\\]{0,64}:([^\s/@\"'<>\\]{1,256})@",
    ),
}  # fmt: skip

LOGIN_BEHIND = lazy(r":(?:\\?/){2}[^\s/@:\"'<>\\]{0,64}:[^\s/@\"'<>\\]{1,256}@")
"""What every address with a password has behind its first word; quick to look for, since it begins with one letter."""

_NAME = (
    r"(?:password|passwd|passphrase|passcode|secret|token|api[_.-]?key|access[_.-]?key(?:[_.-]?id)?|account[_.-]?key|"
    r"private[_.-]?key|signing[_.-]?key|encryption[_.-]?key|session[_.-]?key|master[_.-]?key|credentials?|connection[_.-]?string|"
    r"webhook[_.-]?(?:url|secret)|(?:(?<![A-Za-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:pass|pwd|dsn|sas|auth(?!or(?!iz))(?:[_.-]?key)?|bearer))"
)
BEGINNINGS = (
    "pass", "secret", "token", "api", "access", "account", "private", "signing", "encryption", "session", "master",
    "credential", "connection", "webhook", "pwd", "dsn", "sas", "auth", "bearer",
)  # fmt: skip
"""How every name in `_NAME` begins, in small letters."""
_QUOTE = r"(?:\\{0,3}[\"'`])"
# `"db_password": "…"`, `PASSWORD=…`, `password: …`, `--token …`, `<password>…</password>`, also inside escaped JSON.
ASSIGNED = lazy(
    r"(?i)(?P<name>" + _NAME + r"(?:[_.-]?[a-z0-9]{1,12}){0,2})" + _QUOTE
    + r"?\]?[ \t]{0,4}(?P<sign>:=|=>|==?|:|>|[ \t])[ \t]{0,4}(?:\|-?\s{1,8}|[brfu](?=[\"']))?"
    r"(?:(?P<quote>\\{0,3}[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\r\n]){1,4096})(?P=quote)|(?P<bare>[^\s\"'`<>,;&|(){}\[\]]{3,4096}))"
)  # fmt: skip
HEADER = lazy(
    r"(?i)\b(?:authorization|proxy-authorization|x-api-key|x-auth-token|cookie|set-cookie)\\?[\"']?\s*[:=]\s*\\?[\"']?\s*"
    r"(?:(?:bearer|basic|token|digest|apikey|negotiate)\s+)?([^\s\"'\\,;]{6,4096})"
)
SCHEME = lazy(r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9+/._~-]{16,4096}=*)")
# A search for what begins with one letter skips all others, so what must not be in front of it is asked behind it.
OPTION = lazy(r"(?i)-(?<![\w-]-)(?:-?(?:user|userpass|proxy-user)[ =]|u[ =]?)[\"']?[^\s:\"'/]{1,64}:([^\s\"'@]{3,256})")
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
_WRAPS = (
    r"\n", r"\r\n", r"\\\r?\n", r" [ \t]{0,7}+\+?" + _END, r"\t[ \t]{0,7}+\+?" + _END, r"\+" + _END,
    r"\"[ \t]{0,8}+\+?" + _END, r"'[ \t]{0,8}+\+?" + _END, r"\\\\?r?\\{0,2}n",
)  # fmt: skip
WRAP = lazy(r"(?:" + "|".join(_WRAPS) + r")[ \t>|#*+]{0,60}[\"']?")
_GOES_ON = r"[ \t]{0,8}[+.]?[ \t]{0,8}\\?\r?\n[ \t]{0,60}[+.]?[ \t]{0,8}[\"']"
CONTINUED = lazy(r"\\\r?\n[ \t]{0,60}|\"" + _GOES_ON + r"|'" + _GOES_ON)
"""Line breaks that a shell or a compiler takes out: only across these a value goes on for sure."""
ESCAPE = lazy(r"\\\\*u00([0-7][0-9a-fA-F])|%([2-7][0-9a-fA-F])")

PLACEHOLDER = lazy(
    r"(?i)^(?:[x*.•#_-]{3,}.*|<.*|\$.*|%.*%?|\{.*|\[.*|.*(?:\$\{|\{\{|<%).*|your.*|my[-_]?.*|example.*|sample.*|dummy.*|fake.*|mock.*|"
    r"change[-_ ]?me.*|replace.*|insert.*|enter.*|todo.*|redacted.*|placeholder.*|test(?:ing)?|none|null|nil|undefined|true|false|"
    r"yes|no|on|off|bearer|basic|string|str|bytes|text|password|passwd|secret|token|default|required|optional|string\b.*|unset|empty|hidden|"
    r"encrypted:.*|\d{1,5}|n/a)$"
)
CODE = lazy(
    r"^(?:[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+.*|[A-Za-z_$][\w.$]*\(.*|@.*|self\..*|os\..*|process\..*|env\..*)$"
)
PROSE = lazy(r"^[a-zA-Z][a-z'’-]*[.,:;!?)]*$")
