"""Secrets that are none: made up from a seed, each of the form that a service gives out, and put wherever secrets turn up."""

from __future__ import annotations

import base64
import json
import string
from random import Random
from typing import NamedTuple

LETTERS, DIGITS, HEX = string.ascii_letters, string.digits, "0123456789abcdef"
MIXED = LETTERS + DIGITS
URL64 = MIXED + "_-"
BASE64 = MIXED + "+/"
CAPITALS = string.ascii_uppercase
BASE32 = CAPITALS + "234567"


class Secret(NamedTuple):
    """One made-up secret, and the words that stand around it where it is used."""

    kind: str
    value: str
    setting: str
    """A name under which it would stand in a settings file."""


def secrets(seed: int) -> list[Secret]:
    """Forty kinds, one of each."""
    random = Random(seed)

    def some(alphabet: str, count: int) -> str:
        return "".join(random.choice(alphabet) for _ in range(count))

    made = [
        ("aws access key", "AKIA" + some(BASE32, 16), "aws_access_key_id"),
        ("aws secret key", some(BASE64, 40), "aws_secret_access_key"),
        ("github token", "ghp_" + some(MIXED, 36), "GITHUB_TOKEN"),
        ("github app token", "ghs_" + some(MIXED, 36), "token"),
        ("github fine-grained", "github_pat_" + some(MIXED, 22) + "_" + some(MIXED, 59), "pat"),
        ("gitlab token", "glpat-" + some(URL64, 20), "GITLAB_TOKEN"),
        ("slack bot token", f"xoxb-{some(DIGITS, 12)}-{some(DIGITS, 12)}-{some(MIXED, 24)}", "slack_token"),
        ("slack app token", f"xapp-1-{some(CAPITALS + DIGITS, 11)}-{some(DIGITS, 13)}-{some(HEX, 64)}", "app_token"),
        ("stripe key", "sk_live_" + some(MIXED, 24), "STRIPE_SECRET_KEY"),
        ("stripe webhook", "whsec_" + some(MIXED, 32), "endpoint_secret"),
        ("openai project key", "sk-proj-" + some(URL64, 47) + "9", "OPENAI_API_KEY"),
        ("openai key", "sk-" + some(MIXED, 20) + "T3BlbkFJ" + some(MIXED, 20), "api_key"),
        ("anthropic key", "sk-ant-api03-" + some(URL64, 93) + "AA", "ANTHROPIC_API_KEY"),
        ("google key", "AIza" + some(URL64, 34) + "x", "google_api_key"),
        ("google client secret", "GOCSPX-" + some(URL64, 28), "client_secret"),
        ("npm token", "npm_" + some(MIXED, 36), "NPM_TOKEN"),
        ("pypi token", "pypi-AgEIcHlwaS5vcmc" + some(URL64, 70), "password"),
        ("sendgrid key", f"SG.{some(URL64, 22)}.{some(URL64, 43)}", "SENDGRID_API_KEY"),
        ("twilio key", "SK" + some(HEX, 32), "twilio_api_key"),
        ("mailgun key", "key-" + some(HEX, 32), "mailgun_api_key"),
        ("azure storage key", some(BASE64, 86) + "==", "AccountKey"),
        ("telegram bot token", f"{random.randrange(10**8, 10**9)}:AAF" + some(URL64, 31) + "a", "bot_token"),
        ("digitalocean token", "dop_v1_" + some(HEX, 64), "do_token"),
        ("huggingface token", "hf_" + some(LETTERS, 34), "HF_TOKEN"),
        ("vault token", "hvs." + some(URL64, 90), "VAULT_TOKEN"),
        ("databricks token", "dapi" + some(HEX, 32), "databricks_token"),
        ("shopify token", "shpat_" + some(HEX, 32), "shopify_access_token"),
        ("age key", "AGE-SECRET-KEY-1" + some(CAPITALS + DIGITS, 58), "age_secret"),
        ("linear key", "lin_api_" + some(MIXED, 40), "linear_api_key"),
        ("doppler token", "dp.pt." + some(MIXED, 43), "doppler_token"),
        ("grafana token", f"glsa_{some(MIXED, 32)}_{some(HEX, 8)}", "grafana_token"),
        ("groq key", "gsk_" + some(MIXED, 52), "groq_api_key"),
        ("docker token", "dckr_pat_" + some(URL64, 27), "docker_password"),
        ("jwt", ".".join((_part({"alg": "HS256", "typ": "JWT"}), _part({"sub": some(MIXED, 12)}), some(URL64, 43))), "jwt_token"),
        ("database password", some(MIXED, 9) + "7!" + some(LETTERS, 5), "db_password"),
        ("basic password", some(LETTERS, 6) + "#" + some(DIGITS, 4) + some(LETTERS, 3), "PASSWORD"),
        ("heroku key", "-".join(some(HEX, count) for count in (8, 4, 4, 4, 12)), "HEROKU_API_KEY"),
        ("session secret", some(HEX, 40), "session_secret"),
        ("webhook token", some(URL64, 32), "webhook_token"),
        ("private key", pem(random), "private_key"),
    ]  # fmt: skip
    return [Secret(*one) for one in made]


def others(seed: int) -> list[tuple[str, str]]:
    """Keys of more services, as these describe them."""
    random = Random(seed)

    def some(alphabet: str, count: int) -> str:
        return "".join(random.choice(alphabet) for _ in range(count))

    def uuid() -> str:
        return "-".join(some(HEX, count) for count in (8, 4, 4, 4, 12))

    return [
        ("tailscale", f"tskey-auth-k{some(MIXED, 11)}CNTRL-{some(MIXED, 32)}"),
        ("figma", "figd_" + some(URL64, 43)),
        ("heroku", "HRKU-AA" + some(URL64, 58)),
        ("mapbox", f"sk.eyJ{some(MIXED, 80)}.{some(URL64, 22)}"),
        ("1password", "ops_eyJ" + some(BASE64, 260)),
        ("1password key", "A3-" + "-".join(some(CAPITALS + DIGITS, count) for count in (6, 6, 5, 5, 5, 5))),
        ("planetscale", "pscale_tkn_" + some(URL64, 43)),
        ("pulumi", "pul-" + some(HEX, 40)),
        ("perplexity", "pplx-" + some(MIXED, 48)),
        ("alibaba", "LTAI" + some(MIXED, 20)),
        ("artifactory", "AKCp" + some(MIXED, 69)),
        ("azure secret", some(MIXED, 3) + "8Q~" + some(MIXED + "_~.-", 34)),
        ("brevo", f"xkeysib-{some(HEX, 64)}-{some(MIXED, 16)}"),
        ("clojars", "CLOJARS_" + some(HEX, 60)),
        ("dynatrace", f"dt0c01.{some(CAPITALS + DIGITS, 24)}.{some(CAPITALS + DIGITS, 64)}"),
        ("easypost", "EZAK" + some(MIXED, 54)),
        ("facebook", "EAAC" + some(MIXED, 120)),
        ("fly", "fm2_" + some(BASE64, 120)),
        ("gitlab runner", "GR1348941" + some(URL64, 20)),
        ("gitlab agent", "glagent-" + some(URL64, 50)),
        ("hubspot", "pat-na1-" + uuid()),
        ("linear", "lin_api_" + some(MIXED, 40)),
        ("mailchimp", some(HEX, 32) + "-us14"),
        ("maxmind", f"{some(MIXED, 6)}_{some(MIXED, 29)}_mmk"),
        ("new relic", "NRAK-" + some(CAPITALS + DIGITS, 27)),
        ("openshift", "sha256~" + some(URL64, 43)),
        ("plaid", "access-production-" + uuid()),
        ("postman", f"PMAK-{some(HEX, 24)}-{some(HEX, 34)}"),
        ("prefect", "pnu_" + some(MIXED, 36)),
        ("readme", "rdme_" + some(HEX, 70)),
        ("sentry user", "sntryu_" + some(HEX, 64)),
        ("shippo", "shippo_live_" + some(HEX, 40)),
        ("sourcegraph", f"sgp_{some(HEX, 16)}_{some(HEX, 40)}"),
        ("typeform", "tfp_" + some(URL64, 59)),
        ("vault batch", "hvb." + some(URL64, 140)),
        ("yandex", "AQVN" + some(URL64, 36)),
        ("adafruit", "aio_" + some(MIXED, 27) + "7"),
        ("fireworks", "fw_" + some(MIXED, 21) + "aB7"),
        ("infisical", f"st.6{some(HEX, 23)}.{some(HEX, 32)}.{some(HEX, 32)}"),
        ("defined", f"dnkey-{some(CAPITALS + DIGITS, 26)}-{some(CAPITALS + DIGITS, 52)}"),
        ("asana", f"1/1{some(DIGITS, 15)}:{some(HEX, 32)}"),
        ("asana, newer", f"2/1{some(DIGITS, 15)}/1{some(DIGITS, 15)}:{some(HEX, 32)}"),
        ("twitch", "oauth:" + some(string.ascii_lowercase + DIGITS, 29) + "7"),
        ("intercom", base64.b64encode(f"tok:{some(HEX, 8)}_{some(HEX, 40)}:1:0".encode()).decode()),
    ]  # fmt: skip


def _part(value: dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def pem(random: Random) -> str:
    body = base64.b64encode(random.randbytes(300)).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(("-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"))


def coded(secret: Secret) -> str:
    """In base64, with the setting before it, as a Kubernetes manifest or a header would have it."""
    return base64.b64encode(f"{secret.setting}={secret.value}".encode()).decode()


def halves(value: str) -> tuple[str, str]:
    middle = len(value) // 2
    return value[:middle], value[middle:]


def traces(secret: Secret) -> list[bytes]:
    """What must not be found: the secret itself, its halves, its lines, and its forms in JSON and base64."""
    value = secret.value
    found = {value, json.dumps(value)[1:-1], coded(secret)}
    found.update(part for part in halves(value) if len(part) >= 10)
    found.update(line for line in value.split("\n") if len(line) >= 24 and "-----" not in line)
    for shift in range(3):
        inner = base64.b64encode(b"\0" * shift + value.encode()).decode()
        found.add(inner[4:-4])
    return [text.encode() for text in found if len(text) >= 8]
