"""Keys issued by services, private keys and URLs with a password: the one list of what is detected and redacted."""

from __future__ import annotations

_SPECIAL = "\\.+*?()[]{}^$|/"
_LETTERS, _URL, _HEX = "[A-Za-z0-9]", "[A-Za-z0-9_-]", "[0-9a-f]"
_END = r"(?![A-Za-z0-9])"
_ESCAPES = r"\\[abefnrtv0]", "%[0-7][0-9A-Fa-f]", r"\\u00[0-7][0-9a-fA-F]", r"\\x[0-7][0-9a-fA-F]", "<!--"
"""Escapes that end in a letter or digit: a key may directly follow one."""
_LINE_BEGINNINGS = r"\n[+-]", r"\A[+-]", r"\n--", r"\A--", "\ufffd[A-Za-z0-9+/_~.-]"
"""The same for line beginnings: of patches, of comments in Lua and SQL, and of a pickle's texts behind their length byte."""
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_BOUNDARY = (
    "(?:" + "|".join(["(?<![A-Za-z0-9_~.-])", *[f"(?<={escape})" for escape in (*_ESCAPES, *_LINE_BEGINNINGS)]]) + ")"
)
_BASE64_BOUNDARY = _BOUNDARY.replace("_~.-", "+/")
_HOST = r"[^\s/@:\"'<>\\]{0,256}"
_USER = _HOST + r"(?:@[^\s/@:\"'<>\\]{1,256}(?=:[^\s/@:\"'<>\\]{1,512}@))?"
"""The user may be an e-mail address; then the password has no slash, since `ssh://git@host:folder/name@v1` has none."""
# A host's port is no password, and what comes behind it may have an `@` in it: `http://localhost:4873/@scope/name`. Of what has
# one in it, only what could be a password by its look counts.
_PORT = r"(?!\d{1,5}\\?/(?![A-Za-z0-9+_.~!$%^&*-]{8,64}@)|\d{1,5}\\?/(?-i:[a-z._-]*)@)"
_PASSWORD = _PORT + r"(?:[^\s@\"'<>\\]|\\/){1,512}(?:@[^\s@/:\"'<>\\]{6,64}(?=@))?"


# Kind → prefixes, a pattern for the rest of the key, and which characters before a prefix make it part of a longer word
# (letters and digits by default). A key ends where its own alphabet ends.
BEGINNINGS: dict[str, tuple[str, str] | tuple[str, str, str]] = {
    # Clouds
    "aws-key": ("AKIA ASIA ABIA ACCA", "[A-Z2-7]{16}" + _END),
    "aws-bedrock-key": ("ABSK bedrock-api-key-", "[A-Za-z0-9+/]{60,}={0,2}"),
    "google-key": ("AIza", _URL + "{35}"),
    "google-oauth": ("ya29. GOCSPX-", _URL + "{20,}"),
    "google-refresh-token": ("1//0", _URL + "{40,}", "A-Za-z0-9/"),
    "alibaba-key": ("LTAI", _LETTERS + "{16,24}" + _END),
    "yandex-key": ("AQVN t1.9eu", _URL + r"{35,}(?:={0,2}\.[A-Za-z0-9_-]{80,}={0,2})?"),
    "yandex-token": ("t1.", r"[A-Za-z0-9_-]{8,}={0,2}\.[A-Za-z0-9_-]{86}={0,2}"),
    "yandex-secret": (
        " ".join(f"YC{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
        "(?=[A-Z_a-z-]*[0-9])(?=[A-Z0-9_-]*[a-z])(?=[a-z0-9_-]*[A-Z])[A-Za-z0-9_-]{37}(?![A-Za-z0-9+/=_]|-(?!->))",
        "A-Za-z0-9+/_-",
    ),
    "digitalocean-token": ("dop_v1_ doo_v1_ dor_v1_", _HEX + "{64}"),
    "heroku-key": ("HRKU-", _URL + "{30,}"),
    "flyio-token": ("fo1_ fm1a_ fm1r_ fm2_", "[A-Za-z0-9+/_-]{40,}={0,3}"),
    "netlify-token": ("nfp_ nfc_ nfo_ nfb_ nfu_", _LETTERS + "{32,}"),
    "vercel-token": ("vcp_ vci_ vca_ vcr_ vck_", _LETTERS + "{24,}"),
    "render-key": ("rnd_", _LETTERS + "{24,}"),
    "deno-token": ("ddp_ ddo_", _LETTERS + "{36}"),
    "scalingo-token": ("tk-us-", _URL + "{48}"),
    "cloudflare-key": ("v1.0-", _HEX + "{24}-" + _HEX + "{146}"),
    "openshift-token": ("sha256~", _URL + "{43}"),
    "tailscale-key": ("tskey-", "[A-Za-z0-9-]{16,}"),
    "cloudflare-token": ("cfut_ cfat_ cfk_", "[A-Za-z0-9]{36,}"),
    "google-agent-key": ("AQ.Ab", _URL + "{40,}"),
    "tencent-key": ("AKID", "(?=[A-Za-z]*[0-9])" + _LETTERS + "{32}" + _END),
    "volcengine-key": ("AKLT", "(?=[A-Za-z]*[0-9])[A-Za-z0-9=]{40,48}" + _END),
    "aws-mws-key": ("amzn.mws.", _UUID),
    "aws-login-secret": ("amzn1.oa2-cs.v1.", _HEX + "{64}"),
    "aws-session-token": ("IQoJb3JpZ2luX2Vj FwoGZXIvYXdz", "[A-Za-z0-9+/=]{100,}"),
    "defined-key": ("dnkey-", "[A-Za-z0-9=_-]{26}-[A-Za-z0-9=_-]{52}"),
    "scaleway-key": ("SCW", "(?=[A-Z]*[0-9])[A-Z0-9]{17}" + _END, "A-Za-z0-9_"),
    "portainer-token": ("ptr_", "[A-Za-z0-9+/]{40,}={0,2}"),
    "vercel-blob-token": ("vercel_blob_rw_", "[A-Za-z0-9]{16}_[A-Za-z0-9]{24,}"),
    "runpod-key": ("rpa_", "[A-Z0-9]{40}[A-Za-z0-9]{2,8}" + _END),
    "netbird-token": ("nbp_", _LETTERS + "{36}"),
    # Code and packages
    "github-token": ("ghp_ gho_ ghu_ ghs_ ghr_", _LETTERS + "{30,255}"),
    "github-pat": ("github_pat_", "[A-Za-z0-9_]{22,255}"),
    "gitlab-token": (
        "glpat- gldt- glrt- glcbt- glptt- glffct- glft- glimt- glrtr- glagent- gloas- glsoat- GR1348941 _gitlab_session=",
        _URL + r"{20,}(?:\.[0-9a-z]{9})?",
    ),
    "atlassian-token": ("ATATT3 ATCTT3", "[A-Za-z0-9_=-]{50,}"),
    "bitbucket-token": ("ATBB", _LETTERS + "{24,}"),
    "trello-token": ("ATTA", _HEX + "{64,}"),
    "sourcegraph-token": ("sgp_ sgd_", "(?:local_|[0-9a-fA-F]{16}_)?[0-9a-fA-F]{40,}"),
    "npm-token": ("npm_", _LETTERS + "{36}"),
    "pypi-token": ("pypi-AgE", _URL + "{40,}"),
    "rubygems-key": ("rubygems_", _HEX + "{40,}"),
    "crates-token": ("cio", _LETTERS + "{32}" + _END, "A-Za-z0-9_"),
    "nuget-key": ("oy2", "[a-z0-9]{43}" + _END, "A-Za-z0-9_"),
    "clojars-token": ("CLOJARS_", "[A-Za-z0-9]{60}"),
    "packagist-token": ("packagist_", "[a-z]{3}_" + _HEX + "{60,}"),
    "docker-token": ("dckr_pat_ dckr_oat_", _URL + "{20,}"),
    "artifactory-key": ("AKCp", _LETTERS + "{60,}" + _END),
    "artifactory-token": ("cmVmd", _LETTERS + "{59}" + _END),
    "buildkite-token": ("bkua_ bkct_ bkpt_ bkaj_", _HEX + "{32,}"),
    "circleci-token": ("CCIPAT_ CCIPRJ_", "[A-Za-z0-9_]{30,}"),
    "snyk-token": ("snyk_uat. snyk_sat.", r"[A-Za-z0-9_.-]{24,}"),
    "sonar-token": ("squ_ sqp_ sqa_", _HEX + "{40}"),
    "harness-key": ("pat. sat.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    "octopus-key": ("API-", "(?=[A-Z]*[0-9])[A-Z0-9]{25,32}" + _END),
    "prefect-token": ("pnu_ pnb_", _LETTERS + "{36}"),
    "pulumi-token": ("pul-", _HEX + "{40}"),
    "infracost-key": ("ico-", _LETTERS + "{32}" + _END, "A-Za-z0-9_-"),
    "dbt-token": ("dbtc_ dbtu_", "[A-Za-z0-9_-]{30,}"),
    "readme-key": ("rdme_", "[a-z0-9]{70}"),
    "wakatime-key": ("waka_", _UUID),
    "jetbrains-token": ("perm:", r"[A-Za-z0-9=]{4,}\.[A-Za-z0-9=]{4,}\.[A-Za-z0-9]{24,}"),
    "apify-key": ("apify_api_", _LETTERS + "{30,}"),
    "endor-token": ("endr+", _URL + "{16,}"),
    "rootly-key": ("rootly_", _HEX + "{64}"),
    "retool-key": ("retool_", "(?=[a-z]*[0-9])[a-z0-9]{26}" + _END),
    "chromatic-token": ("chpt_", _HEX + "{15}" + _END),
    "inngest-key": ("signkey-prod- signkey-test-", _HEX + "{32,}"),
    "convex-key": ("prod: preview: project:", r"[a-z0-9-]{3,40}(?::[a-z0-9-]{2,40})?\|[A-Za-z0-9+/=]{20,}"),
    "zuplo-key": ("zpka_", "[A-Za-z0-9]{32}_[A-Za-z0-9]{8}" + _END),
    # Models
    "anthropic-key": ("sk-ant-", _URL + "{16,}"),
    "openai-key": (
        "sk-", r"(?!ssh-|ecdsa-)(?:proj-|svcacct-|admin-|or-v1-|None-|lf-)?(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}", "A-Za-z0-9_-"
    ),
    "huggingface-token": ("hf_ api_org_", _LETTERS + "{30,40}" + _END),
    "groq-key": ("gsk_", _LETTERS + "{40,}"),
    "xai-key": ("xai-", _LETTERS + "{60,}"),
    "perplexity-key": ("pplx-", _LETTERS + "{40,}"),
    "replicate-token": ("r8_", _LETTERS + "{37,}"),
    "nvidia-key": ("nvapi-", _URL + "{50,}"),
    "cerebras-key": ("csk-", "[a-z0-9]{40,}", "A-Za-z0-9_-"),
    "together-key": ("tgp_v1_", _URL + "{30,}"),
    "tavily-key": ("tvly-", _URL + "{20,}"),
    "e2b-key": ("e2b_", _HEX + "{40}"),
    "langsmith-key": ("lsv2_pt_ lsv2_sk_", _HEX + "{32}_" + _HEX + "{10}"),
    "pinecone-key": ("pcsk_", "[A-Za-z0-9_]{40,}"),
    "wandb-key": ("wandb_v1_", "[A-Za-z0-9_]{30,}"),
    "elevenlabs-key": (" ".join(f"sk_{digit}" for digit in "0123456789abcdef"), _HEX + "{47}" + _END, "A-Za-z0-9_"),
    "firecrawl-key": ("fc-", _HEX + "{32}" + _END, "A-Za-z0-9_-"),
    "fireworks-key": (
        "fw_", "(?=[A-Za-z]*[0-9])(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{20,32}" + _END, "A-Za-z0-9_"
    ),
    "voyage-key": ("pa-", "(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_]|-(?!->))", "A-Za-z0-9_-"),
    "jina-key": ("jina_", _LETTERS + "{60}" + _END),
    # Payments and shops
    "stripe-key": (
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_ pk_test_ sk_org_live_ sk_org_test_", _LETTERS + "{16,}"
    ),
    "stripe-webhook": ("whsec_", "[A-Za-z0-9+/=]{24,}"),
    "square-token": ("sq0atp- sq0csp- sq0idp-", _URL + "{22,}"),
    "square-access-token": ("EAAA", _URL + "{56,64}(?![A-Za-z0-9+/=_-])", "A-Za-z0-9+/"),
    "facebook-token": (
        " ".join(f"EAA{letter}" for letter in "BCDEFGHIJKLMNOPQRSTUVWXYZ"), _LETTERS + "{100,}", "A-Za-z0-9+/"
    ),
    "adyen-key": ("AQE", "[A-Za-z0-9+/]{40,}={0,2}-[A-Za-z0-9+/]{20,}={0,2}", "A-Za-z0-9+/"),
    "razorpay-key": ("rzp_live_ rzp_test_", _LETTERS + "{14,}"),
    "plaid-token": ("access-sandbox- access-development- access-production-", _UUID),
    "flutterwave-key": ("FLWSECK- FLWSECK_TEST- FLWPUBK_TEST-", "[A-Za-z0-9]{12,}(?:-X)?"),
    "easypost-key": ("EZAK EZTK", _LETTERS + "{54}" + _END),
    "duffel-token": ("duffel_live_ duffel_test_", "[A-Za-z0-9_=-]{43}"),
    "shippo-token": ("shippo_live_ shippo_test_", "[0-9a-fA-F]{40}"),
    "shopify-token": ("shpat_ shpca_ shppa_ shpss_ shpua_", "[0-9a-fA-F]{32}"),
    "mollie-key": ("live_", "(?=[A-Za-z]*[0-9])(?:[A-Za-z0-9]{30}|[0-9a-f]{35})" + _END, "A-Za-z0-9_"),
    "polar-token": (
        "polar_oat_ polar_pat_ polar_cst_ polar_whs_ polar_cs_ polar_at_u_ polar_at_o_ polar_rt_u_ polar_rt_o_", _URL + "{30,}"
    ),
    "ramp-secret": ("ramp_sec_", _LETTERS + "{48}"),
    # Messages
    "slack-token": ("xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", "[A-Za-z0-9-]{10,}"),
    "sendgrid-key": ("SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    # Keys alone: what begins with AC names an account and opens nothing.
    "twilio-key": (" ".join(f"SK{digit}" for digit in "0123456789abcdef"), "[0-9a-f]{31}" + _END),
    "mailgun-key": ("key- pubkey-", _HEX + "{32}" + _END, "A-Za-z0-9_-"),
    "mailersend-key": ("mlsn.", _HEX + "{64}"),
    "brevo-key": ("xkeysib- xsmtpsib-", _HEX + "{64}-[A-Za-z0-9]{16}"),
    "resend-key": ("re_", "[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}", "A-Za-z0-9_"),
    # `tok:` in base64, and the first bits of what may follow.
    "intercom-token": ("dG9rOj dG9rOk dG9rOl dG9rOm dG9rOn", "[A-Za-z0-9+/]{40,}={0,2}"),
    "twitch-token": ("oauth:", "(?=[a-z]*[0-9])[a-z0-9]{30}" + _END),
    "hubspot-token": ("pat-na1- pat-na2- pat-eu1- pat-ap1-", _UUID),
    # A bot's number of 17 to 20 digits in base64: three of them make four letters. `OTE` alone would be in every `OTEL_…`.
    "discord-token": (
        " ".join(
            [two + third for two in "MT Mj Mz ND NT Nj Nz OD OT".split() for third in "AEIMQUYcgk" if two + third != "OTE"]
            + ["OTE" + fourth for fourth in "wxyz012345"]
        ),
        r"[A-Za-z0-9_-]{19,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}" + _END, "A-Za-z0-9+/_.-"
    ),
    "nylas-key": ("nyk_v0_", _LETTERS + "{60,}"),
    "onesignal-key": ("os_v2_app_ os_v2_org_", "[a-z0-9]{90,}"),
    "instagram-token": ("IGQV IGAA", "[A-Za-z0-9_-]{100,}"),
    # Data, work and watching
    "databricks-token": ("dapi", _HEX + r"{32}(?:-\d)?" + _END),
    "clickhouse-key": ("4b1d", _LETTERS + "{38}" + _END),
    "planetscale-token": ("pscale_tkn_ pscale_oauth_ pscale_pw_", "[A-Za-z0-9_=.-]{32,64}"),
    "supabase-key": ("sbp_ sb_secret_", "[A-Za-z0-9_-]{30,}"),
    "neon-key": ("napi_", _LETTERS + "{40,}"),
    "mongodb-key": ("mdb_sa_sk_", _URL + "{40,}"),
    "aiven-password": ("AVNS_", _URL + "{18,}"),
    "notion-token": ("ntn_ secret_", _LETTERS + "{40,}" + _END),
    "linear-key": ("lin_api_ lin_oauth_", _LETTERS + "{32,}"),
    "asana-token": (
        " ".join(f"{way}/{digit}" for way in "12" for digit in "123456789"), r"\d{11,16}(?:/\d{12,17})?:[0-9a-f]{32}" + _END,
        "A-Za-z0-9/.-",
    ),
    "adafruit-key": ("aio_", "(?=[A-Za-z]*[0-9])[A-Za-z0-9]{28}" + _END, "A-Za-z0-9_"),
    # Not `path`, `patt` and `patc`: too many words of programs begin with them.
    "airtable-token": (
        " ".join(f"pat{letter}" for letter in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefgijklmnopqrsuvwxyz"),
        r"[A-Za-z0-9]{13}\.[0-9a-f]{64}" + _END,
    ),
    "figma-token": ("figd_ figu_ figo_", _URL + "{36,}"),
    "contentful-token": ("CFPAT-", _URL + "{40,}"),
    "dropbox-token": ("sl.", r"(?:u\.)?[A-Za-z0-9_-]{120,}"),
    "mapbox-token": ("sk.eyJ pk.eyJ tk.eyJ", r"[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    "postman-key": ("PMAK-", _HEX + "{24}-" + _HEX + "{34}"),
    "typeform-token": ("tfp_", r"[A-Za-z0-9_.=-]{40,}"),
    "frameio-token": ("fio-u-", "[A-Za-z0-9_=-]{60,}"),
    "n8n-key": ("n8n_api_", "[A-Za-z0-9_.-]{30,}"),
    "klaviyo-key": ("pk_", r"(?:[0-9a-f]{34}|\d+_[A-Z0-9]{32})" + _END, "A-Za-z0-9_"),
    "intra42-secret": ("s-s4t2ud- s-s4t2af-", _HEX + "{64}"),
    "settlemint-token": ("sm_aat_ sm_pat_ sm_sat_", _LETTERS + "{16}"),
    "launchdarkly-key": ("sdk-", _UUID, "A-Za-z0-9_-"),
    "xata-key": ("xau_", _LETTERS + "{32,}"),
    "statsig-key": ("secret-", "(?=[A-Za-z]*[0-9])[A-Za-z0-9]{43}" + _END, "A-Za-z0-9_-"),
    "stytch-secret": ("secret-live- secret-test-", "[A-Za-z0-9_-]{32,}={0,2}"),
    "onfido-token": ("api_live. api_sandbox. api_live_us. api_live_ca.", r"[A-Za-z0-9_-]{11}\.[A-Za-z0-9_-]{32}"),
    "adobe-secret": ("p8e-", _LETTERS + "{32}" + _END),
    "grafana-token": ("glsa_", "[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    "grafana-key": ("glc_ eyJrIjoi", "[A-Za-z0-9+/=]{32,}"),
    "sentry-token": ("sntrys_ sntryu_", "[A-Za-z0-9+/=_-]{40,}"),
    "newrelic-key": ("NRAK- NRII- NRJS-", "[A-Za-z0-9_-]{19,}"),
    "dynatrace-token": ("dt0c01. dt0s01. dt0s02. dt0s16.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{60,}"),
    "posthog-key": ("phx_ phs_", _LETTERS + "{32,}"),
    "honeycomb-key": ("hcaik_ hcbik_ hcxik_ hcxmk_", "[a-z0-9]{40,}"),
    "axiom-token": ("xaat- xapt-", _UUID),
    "voiceflow-key": ("VF.DM. VF.WS.", r"[0-9a-f]{24}\.[A-Za-z0-9]{16}"),
    # Keepers of secrets
    "wallet-key": ("xprv", "[1-9A-HJ-NP-Za-km-z]{107}" + _END),
    "vault-token": ("hvs. hvb. hvr.", _URL + "{20,}"),
    "doppler-token": ("dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", "[A-Za-z0-9._-]{30,}"),
    # The first part tells when it was made: from 2021 on.
    "infisical-token": (
        "st.6 st.7", r"[0-9a-f]{23}\.[0-9a-f]{32}\.[0-9a-f]{32}", "A-Za-z0-9_.-"
    ),
    "age-key": ("AGE-SECRET-KEY-1", "[A-Z0-9]{50,}"),
    "1password-token": ("ops_eyJ", "[A-Za-z0-9+/]{100,}={0,3}"),
    "1password-key": (
        "A3-", "[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}" + _END, "A-Za-z0-9_-"
    ),
    "jwt": ("eyJ", r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", "A-Za-z0-9_-"),
}  # fmt: skip

# What else is known: kind → what every one of them has in it somewhere, and the pattern. The pattern's group 1, if it has one,
# is what is redacted.
OTHERS: dict[str, tuple[tuple[str, ...], str]] = {
    "private-key": (
        ("PRIVATE KEY",),
        # Programs that deal with keys name the line alone; a key has a body.
        r"-----BEGIN[A-Z0-9 ]* PRIVATE KEY(?: BLOCK)?-----(?=[\s\S]{0,300}?[A-Za-z0-9+/]{30})"
        r"[\s\S]*?(?:-----END[A-Z0-9 ]* PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    "url-password": (
        ("://", ":\\/", ":/\\"),
        rf"(?i)[a-z][a-z0-9+.-]{{1,20}}:(?:\\?/){{2}}{_USER}:({_PASSWORD})@",
    ),
    "oracle-password": (
        ("jdbc:oracle:",), r"jdbc:oracle:[a-z0-9]{3,8}:[^\s/@:\"'<>\\]{1,64}\\?/([^\s@/\"'<>\\]{3,128})@"
    ),
    "azure-key": (
        ("AccountKey=", "SharedAccessKey="), r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,}={0,2})"
    ),
    # The signature of an address that opens a store: 32 bytes in base64, most often percent-encoded.
    "azure-signature": (
        ("sig=",), _BOUNDARY + r"sig=((?:[A-Za-z0-9+/]|%2[BbFf]){43}(?:=|%3[Dd]))(?![A-Za-z0-9+/=])"
    ),
    "azure-secret": (
        tuple(f"{digit}Q~" for digit in "0123456789"), _BOUNDARY + r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"
    ),
    "azure-devops-token": (("AZDO",), _BOUNDARY + r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}" + _END),
    "azure-function-key": (("AzFu",), _BOUNDARY + r"[A-Za-z0-9_-]{44}AzFu[A-Za-z0-9_-]{4,}={0,2}"),
    "azure-search-key": (("AzSe",), _BOUNDARY + r"[A-Za-z0-9]{42}AzSe[A-D][A-Za-z0-9]{5}" + _END),
    "azure-storage-key": (
        ("+ASt", "+ABa", "+AMC"), _BASE64_BOUNDARY + r"[A-Za-z0-9+/]{76}\+A(?:St|Ba|MC)[A-Za-z0-9+/]{5}[AQgw]=="
    ),
    "azure-bus-key": (
        ("+ASb", "+AEh", "+ARm"), _BASE64_BOUNDARY + r"[A-Za-z0-9+/]{33}\+A(?:Sb|Eh|Rm)[A-P][A-Za-z0-9+/]{5}="
    ),
    # What Azure OpenAI and others make: 84 characters with a sign at a fixed place.
    "azure-common-key": (
        ("JQQJ9", "ACOG"),
        _BOUNDARY + r"[A-Za-z0-9]{52}(?:JQQJ9[A-Za-z0-9]{23}|[A-Za-z0-9]{24}ACOG)[A-Za-z0-9]{4}" + _END,
    ),
    "azure-cosmos-key": (("ACDb",), _BASE64_BOUNDARY + r"[A-Za-z0-9+/]{76}ACDb[A-Za-z0-9+/]{5}[AQgw]=="),
    "azure-registry-key": (("+ACR",), _BASE64_BOUNDARY + r"[A-Za-z0-9+/]{42}\+ACR[A-Za-z0-9+/]{6}(?![A-Za-z0-9+/])"),
    "authress-key": (
        (".acc-", ".acc_"),
        _BOUNDARY + r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}"
        r"\.acc[_-][A-Za-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,120}",
    ),
    "convex-dev-key": (
        ("|ey", "|01"), _BOUNDARY + r"dev:[a-z0-9-]{3,40}(?::[a-z0-9-]{2,40})?\|(?:eyJ|01)[A-Za-z0-9+/=]{20,}"
    ),
    "salesforce-token": (("!AQ",), _BOUNDARY + r"00D[A-Za-z0-9]{12,15}!AQ[A-Za-z0-9._]{80,100}"),
    "newrelic-license": (("NRAL",), _BOUNDARY + r"[0-9a-f]{36}NRAL" + _END),
    "zapier-webhook": (("hooks.zapier.com",), r"hooks\.zapier\.com\\?/hooks\\?/catch\\?/(\d+\\?/[a-z0-9]{6,})"),
    "openvpn-key": (
        ("OpenVPN Static key",),
        r"-----BEGIN OpenVPN Static key V1-----(?=[\s\S]{0,100}?[0-9a-f]{32})[\s\S]*?(?:-----END OpenVPN Static key V1-----|\Z)",
    ),
    "putty-key": (
        ("PuTTY-User-Key-File-",),
        r"PuTTY-User-Key-File-\d: [\s\S]{0,4000}?Private-Lines: \d+(?=[\s\S]{0,20}?[A-Za-z0-9+/]{30})"
        r"[\s\S]{0,20000}?(?:Private-MAC: [0-9a-f]{40,64}|\Z)",
    ),
    "firebase-key": ((":APA91b",), r"AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{100,}"),
    "terraform-token": ((".atlasv1.",), r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{50,}"),
    "paypal-token": (("access_token$",), r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    "slack-webhook": (
        ("hooks.slack.com",),
        r"hooks\.slack\.com\\?/(?:services|workflows|triggers)\\?/([A-Za-z0-9]+\\?/[A-Za-z0-9]+\\?/[A-Za-z0-9\\/]+)",
    ),
    "discord-webhook": (
        ("discord.com", "discordapp.com"), r"discord(?:app)?\.com\\?/api\\?/webhooks\\?/(\d+\\?/[A-Za-z0-9_-]{40,})"
    ),
    "teams-webhook": (
        (".webhook.office.com",),
        r"\.webhook\.office\.com\\?/webhookb2\\?/([0-9a-f@-]{70,}\\?/IncomingWebhook\\?/[0-9a-f]{32}\\?/[0-9a-f-]{36})",
    ),
    "telegram-token": ((":AA",), r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_]|-(?!->))"),
    "mailchimp-key": (
        tuple(f"-us{digit}" for digit in "123456789"), _BOUNDARY + r"[0-9a-f]{32}-us[1-9]\d?(?![A-Za-z0-9])"
    ),
    "maxmind-key": (("_mmk",), _BOUNDARY + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk" + _END),
}  # fmt: skip

URL_LOGIN_REST = rf":(?:\\?/){{2}}{_USER}:{_PASSWORD}@"
"""What follows the scheme in every URL with a password; quick to search for, since it begins with a fixed character."""


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds."""
    return (*OTHERS, *BEGINNINGS)


def signs(kind: str) -> tuple[str, ...]:
    """Return strings of which every text with a key of this kind has at least one."""
    return tuple(BEGINNINGS[kind][0].split()) if kind in BEGINNINGS else OTHERS[kind][0]


def pattern(kind: str) -> str:
    """Return the pattern of a key of this kind.

    The prefix comes first and the lookbehind after it, so that the engine can skip to a prefix. A key may follow an
    escape (`\\n`, `%3D`, `\\u003d`) although that ends in a letter.
    """
    if kind in OTHERS:
        return OTHERS[kind][1]
    _, rest, inside = (*BEGINNINGS[kind], "A-Za-z0-9")[:3]
    ways = []
    for size in sorted({len(sign) for sign in signs(kind)}):
        alike = "|".join([_plain(sign) for sign in signs(kind) if len(sign) == size])
        boundaries = "|".join(
            [
                rf"(?<![{inside}].{{{size}}})",
                *[rf"(?<={escape}.{{{size}}})" for escape in (*_ESCAPES, *_LINE_BEGINNINGS)],
            ]
        )
        ways.append(f"(?:{alike})(?:{boundaries})")
    return f"(?:{'|'.join(ways)})(?:{rest})"


def _plain(text: str) -> str:
    return "".join(["\\" + letter if letter in _SPECIAL else letter for letter in text])
