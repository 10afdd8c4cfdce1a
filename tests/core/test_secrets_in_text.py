"""What looks like a secret is taken out of text; what only sounds like one stays to the letter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core.sanitize import secret_forms, secrets_in_text
from tests.every_case import every

RANDOM = "0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
PEM = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{RANDOM}\n-----END OPENSSH PRIVATE KEY-----"


@every(
    ("text", "left"),
    [
        ("export WANDB_API_KEY=0123456789abcdef", "export WANDB_API_KEY=***"),
        ('aws_secret_access_key = "a b" set', "aws_secret_access_key = *** set"),
        ("{'hf_token': 'hf_abc', 'lr': 1}", "{'hf_token': ***, 'lr': 1}"),
        ('{\\"password\\": \\"p\\"}', '{\\"password\\": ***}'),
        ("os.environ['API_KEY'] = 'abc'", "os.environ['API_KEY'] = ***"),
        ("os.environ.setdefault('HF_TOKEN', 'abc')", "os.environ.setdefault('HF_TOKEN', ***)"),
        ("setenv HF_TOKEN abc", "setenv HF_TOKEN ***"),
        ('    api_key: str = "abc"', "    api_key: str = ***"),
        ('    db_password: SecretStr = "abc"', "    db_password: SecretStr = ***"),
        ("login(key='0123456789abcdef0123', apiKey='x')", "login(key=***, apiKey=***)"),
        ("key=api_key=abc", "key=api_key=***"),
        ("PASSWD=123456 API_KEY=1234567890", "PASSWD=*** API_KEY=***"),
        ("pwd=hunter2", "pwd=***"),
        ("PASSPHRASE=abc", "PASSPHRASE=***"),
        ("VAULT_SECRET_ID=x VPN_PASS=y", "VAULT_SECRET_ID=*** VPN_PASS=***"),
        ("HF_TOKEN_PROD=x; SMTP_PASS_OLD=y", "HF_TOKEN_PROD=*** SMTP_PASS_OLD=***"),
        ("PGPASSWORD=x SMTP_PASS=y", "PGPASSWORD=*** SMTP_PASS=***"),
        ("clientSecret: abc", "clientSecret: ***"),
        ("wandb login --api-key abc123 failed", "wandb login --api-key *** failed"),
        ("--token=abc --password abc", "--token=*** --password ***"),
        ("curl -H 'Authorization: Bearer eyJhbGciOi.x-y'", "curl -H 'Authorization: Bearer ***'"),
        ("Authorization: token X", "Authorization: token ***"),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic ***"),
        ("{'X-Api-Key': 'abc'}", "{'X-Api-Key': ***}"),
        ("sent Bearer abcdef", "sent Bearer ***"),
        ("curl -s -u a:b https://host", "curl -s -u *** https://host"),
        ("curl --user 'a:b' https://host", "curl --user '***' https://host"),
        ("curl -u a:'b c' https://host", "curl -u *** https://host"),
        ("line 4: 91 Killed  fit.py -u nora:Winter24snow --lr 1", "line 4: 91 Killed  fit.py -u nora:*** --lr 1"),
        ("sqlplus -S nora/Winter24@db7 @q.sql; sqlplus nora/pw", "sqlplus -S nora/***@db7 @q.sql; sqlplus nora/***"),
        ("expdp userid=nora/win.ter@db full=y", "expdp userid=nora/***@db full=y"),
        ("wget --user=a:b https://host", "wget --user=*** https://host"),
        ("sent Basic dXNlcjpwdw==", "sent Basic ***"),
        ("cannot reach https://bob:pw@host/x", "cannot reach https://***@host/x"),
        ("postgresql://u:p/w@h/db, redis://:p?w#x@h", "postgresql://***@h/db, redis://***@h"),
        ("s3://AKIAIOSFODNN7EXAMPLE:wJalr/XUtn@bucket/a@b", "s3://***@bucket/a@b"),
        ("amqp://u:p/w@x@h/y@z", "amqp://***@h/y@z"),
        (f"+ wandb login {RANDOM}", "+ wandb login ***"),
        (f"wandb login --relogin --host https://h '{RANDOM}'", "wandb login --relogin --host https://h '***'"),
        ("huggingface-cli login --token X", "huggingface-cli login --token ***"),
        ("sshpass -p x ssh h; sshpass -v -px ssh h", "sshpass -p *** ssh h; sshpass -v -p*** ssh h"),
        ("sshpass -p 'a b'c ssh h", "sshpass -p *** ssh h"),
        ("/usr/bin/mysql -u root -px db", "/usr/bin/mysql -u root -p*** db"),
        ("mysqldump -P 3306 db -px | gzip", "mysqldump -P 3306 db -p*** | gzip"),
        ("docker login -u a -p x host", "docker login -u a -p *** host"),
        ("podman login -u a -p x host; nerdctl login -p x", "podman login -u a -p *** host; nerdctl login -p ***"),
        ("GET https://host/x?n=1&token=abc&m=2", "GET https://host/x?n=1&token=***&m=2"),
        (f"no access for sk-{RANDOM}.", "no access for sk-***."),
        ("bad key sk-proj-AbC9dEfGhIjKl_mn", "bad key sk-***"),
        (f"hf_{RANDOM}", "hf_***"),
        (f"task-ghp_{RANDOM}, MSG.hf_{RANDOM}", "task-ghp_***, MSG.hf_***"),
        (f"https://risk-ghp_{RANDOM}/x", "https://risk-ghp_***/x"),
        (f"glc_{RANDOM}+{RANDOM}/{RANDOM}, ghp_{RANDOM}/x", "glc_***, ghp_***/x"),
        ("flask-AKIAIOSFODNN7EXAMPLE flask-xoxb-123456789012-abcdefghijkl", "flask-AKIA*** flask-xoxb-***"),
        (f"ghp_{RANDOM}, github_pat_11ABCDEFG0_{RANDOM}", "ghp_***, github_pat_***"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA***"),
        (f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{RANDOM}", "eyJ***"),
        (PEM, "-----BEGIN OPENSSH PRIVATE KEY-----***-----END OPENSSH PRIVATE KEY-----"),
        (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{RANDOM}\n=ab1C", "-----BEGIN PGP PRIVATE KEY BLOCK-----***"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{RANDOM}\nab", "-----BEGIN RSA PRIVATE KEY-----***"),
        (f"{RANDOM}{RANDOM}", "***"),
        (f"{RANDOM}{RANDOM}\n{RANDOM}=\n-----END PRIVATE KEY-----", "***\n***\n-----END PRIVATE KEY-----"),
        ("my password is x", "my password is ***"),
        ("the password was hunter2.", "the password was ***"),
        ("login failed with password hunter", "login failed with password ***"),
        ("using password 'a b' for bob", "using password *** for bob"),
        ("passphrase x", "passphrase ***"),
        ("my pw: x; db_pw=y", "my pw: *** db_pw=***"),
        ("pw: hunter2, pw='Sommer2026!'", "pw: *** pw=***"),
        ("Passwort: x, Kennwort: y, mot de passe : z", "Passwort: *** Kennwort: *** mot de passe : ***"),
        ("密码：x contraseña=y пароль: z", "密码：*** contraseña=*** пароль: ***"),
        ("API key: 'x', token is 'x'", "API key: ***, token is ***"),
        ("Cookie: session=x; y=z", "Cookie: ***"),
        ("Set-Cookie: sid=x; Expires=Thu, 01 Jan 2026 00:00:00 GMT; HttpOnly", "Set-Cookie: ***"),
        ("INFO Cookie: sid=x; b=\"q r\" (401)", "INFO Cookie: *** (401)"),
        ("> cookie: a=b\\c; d=e", "> cookie: ***"),
        ("cookies={'session': 'x', 'b': 'y'}, n=3", "cookies={***}, n=3"),
        ('curl -s -b "session=x; b=y" https://h', "curl -s -b *** https://h"),
        ("curl --cookie=a=b https://h", "curl --cookie=*** https://h"),
        ("DB password changed to Sommer2026!", "DB password changed to ***"),
        ("password has been set to 'x'; set the root password to Sommer2026!", "password has been set to ***; set the root password to ***"),
        ("access token 0a1b2c3d4e5f6071, Using token 0a1b2c3d4e5f6071", "access token *** Using token ***"),
        ("mot de passe est toto", "mot de passe est ***"),
        ("{'Cookie': 'a=b; c=d', 'lr': 1}", "{'Cookie': '***', 'lr': 1}"),
        ('{\\"Cookie\\": \\"a=b\\", \\"lr\\": 1}', '{\\"Cookie\\": \\"***\\", \\"lr\\": 1}'),
        ("curl -H 'Cookie: a=b' https://h", "curl -H 'Cookie: ***' https://h"),
        ("host:0 MIT-MAGIC-COOKIE-1  0123456789abcdef0123456789abcdef", "host:0 MIT-MAGIC-COOKIE-1  ***"),
        ("https://hooks.slack.com/services/T0AB12/B0CD34/x1 failed", "https://hooks.slack.com/services/T0AB12/B0CD34/*** failed"),
        ("exceeded with url: /api/webhooks/123456789012345678/x (Caused", "exceeded with url: /api/webhooks/123456789012345678/*** (Caused"),
        (f"url: /bot123456789:AA{RANDOM[:33]}/sendMessage", "url: /bot***/sendMessage"),
        (f"url: /services/T0AB12CD/B0CD34EF/{RANDOM[:24]} (Caused", "url: /services/T0AB12CD/B0CD34EF/*** (Caused"),
        ("url: /triggers/T0AB12CD/1234567890123/0a1b", "url: /triggers/T0AB12CD/***"),
        ("/api/v10/webhooks/123456789012345678/x, /webhook/0a1b2c3d-4e5f@x/y", "/api/v10/webhooks/123456789012345678/*** /webhook/***"),
        (f"https://chat/hooks/{RANDOM[:24]} /hooks/abc1def2ghi3/{RANDOM[:24]}", "https://chat/hooks/*** /hooks/abc1def2ghi3/***"),
        (f"POST /chat/hooks/{RANDOM[:24]} https://h/chat/hooks/{RANDOM[:24]}", "POST /chat/hooks/*** https://h/chat/hooks/***"),
        ("https://maker/trigger/done/with/key/a1-b2 url: /trigger/done/json/with/key/a1-b2", "https://maker/trigger/done/with/key/*** url: /trigger/done/json/with/key/***"),
        ("https://hooks.zapier.com/hooks/catch/12/a1/ failed", "https://hooks.zapier.com/hooks/catch/12/*** failed"),
        ("RUN_WEBHOOK_URL=https://h/a {'webhook': 'https://h/b'}", "RUN_WEBHOOK_URL=https://h/*** {'webhook': 'https://h/***'}"),
        ('{"w":"https:\\/\\/hooks.slack.com\\/services\\/T0AB12\\/B0CD34\\/x1","n":1}', '{"w":"https:\\/\\/hooks.slack.com\\/services\\/T0AB12\\/B0CD34\\/***","n":1}'),
        ('{"dsn":"https:\\/\\/0a1b@o1.ingest.sentry.io\\/4"} https:\\/\\/h:443\\/a@b', '{"dsn":"https:\\/\\/***@o1.ingest.sentry.io\\/4"} https:\\/\\/h:443\\/a@b'),
        ("api_key set to a1b2c3d4e5, the hf_key is 'x', cache_key is a1b2c3d4e5", "api_key set to *** the hf_key is ***, cache_key is a1b2c3d4e5"),
        (f"abc8Q~{RANDOM[:34]}", "***"),
    ],
)  # fmt: skip
def test_a_secret_is_taken_out(text: str, left: str) -> None:
    """By its name, its form, or what stands before it; the name and the maker's prefix say which it was."""
    assert secrets_in_text.masked(text) == left


@every(
    "text",
    [
        "Unexpected key: model.layer",
        "missing keys: [...]",
        "/hooks/post_install.py webhook: https://docs/hooks/setup.html /api/webhooks/list",
        "/hooks/20240501120000/log /opt/hooks/ab12cd34/pre_install",
        "/data/pairs/with/key/table.csv, /opt/repo/hooks/postMerge2031checksAllFiles: no",
        "/home/u/hooks/epoch20310102lossAndWeights/model.pt",
        'Missing key(s) in state_dict: "a.b"',
        "monkey: banana",
        "turkey = 3kg",
        "tokens: 4096",
        "KeyError: 'lr'",
        "KeyError: 'WANDB_API_KEY'",
        "jwt.InvalidTokenError: Not enough segments",
        "tokenizer = gpt2",
        "--tokenizer gpt2 --max-tokens 4096",
        "num_tokens=12, max_tokens=4096, tokens: 1.2k, token: 5",
        "keyword: x",
        "pad_token = '<pad>', eos_token: </s>",
        "SyntaxError: Unexpected token: else",
        "token = next(tokens)",
        "primary_key=id, sort_key: name, cache key: abc",
        "self.q_proj, self.key = nn.Linear(8, 8)",
        "PRIMARY_KEY=id, SORT_KEY=name, CACHE_KEY=abc",
        "api_key=<your key>, password: <PASSWORD>",
        "setenv LR 0.1; os.environ.setdefault('OMP_NUM_THREADS', '8')  # no secret",
        "token = 5, token=12k",
        "forward pass: 12 ms, pass = 3",
        "PWD=/home/alice",
        "ssl_key_file=/etc/key.pem password_file: /etc/secret",
        "api_key=None, token='', HF_TOKEN=$HF_TOKEN, password: ***",
        "hf_hub_download failed, sk-learn-contrib-0.6, task-12345678",
        "The Bearer token is invalid",
        "no Bearer in the header, expected a Bearer for this host",
        "Basic Linear Algebra Subprograms",
        "token::Kind, key::value",
        "checkpoint version 3 is too new (max 2)",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "ACGT" * 17,
        f"d41d8cd98f00b204e9800998ecf8427e{'0' * 32}",
        "http://host:8080/a?mail=x@y",
        "https://host/path/a@b http://host:8080/a@b http://[::1]:8080/a@b nfs://host:/a@b oci://h:5000/i@sha256:0a",
        "run wandb login again, wandb login --relogin, wandb login $WANDB_API_KEY",
        "mysql -p db, mysql -p$PW db, sshpass -p $PW ssh h, sshpass -e ssh h",
        "docker run --name mysql -p3306:3306 mysql:8",
        "mysql -u root; mkdir -pv x",
        "docker run -u 1000:1000 img, podman run -u nora:research img, python -u run.py:12, sort -u a:b",
        "sqlplus /nolog, sqlplus jobs/report.sql, sqlplus / as sysdba, rman target /",
        "slurmstepd: error: credential: Invalid job credential",
        "Access denied for user 'bob'@'host' (using password: YES)",
        "Access denied for user 'bob'@'host' (using password: NO)",
        'FATAL:  password authentication failed for user "bob"',
        "fe_sendauth: no password supplied",
        "sudo: a password is required",
        "sudo: a terminal is required to read the password; either use the -S option",
        "Enter passphrase for key '/home/a/.ssh/id_rsa': Enter passphrase (empty for no passphrase):",
        "Permission denied (publickey,password).",
        "The password is too short. Your password is about to expire. Password mismatch",
        "password expired 3 days ago, password attempts left: 2, password is null",
        "password [REDACTED], password <hidden>, password ****, password {}, password %s",
        "Your password was changed on 2026-01-03, login with password disabled, Passwort falsch",
        "token is expired, no username or password is present, an empty password and/or salt, keep the passphrase confidential",
        "invalid token at line 3, lost token 0, token 5 of 4096, EOS token is 151645",
        "Unexpected token is '}', unexpected token '}', next token is 'else'",
        "Token is valid (permission: read). Your token has been saved to /home/bob/.cache/huggingface/token",
        "WANDB_API_KEY is not set, HF_TOKEN not found, WANDB_API_KEY environment variable",
        "API key: not set, API key is missing, Incorrect API key provided, access token: none",
        "cookie: not found, cookies: 3, no Cookie in the header, the cookie jar is empty",
        'secret my-secret-1 not found, secrets "foo" not found, the secret is required',
        "pw = next(x), pw: 12.3, pw.x: error, pw_transfer 3",
        "pw: blyp, xc pw : PW92, n_pw: 123456789, max_pw = 1234567890, pw = 4x4x4, pw = 10x10x10",
        "power (pw): 123.4567890 W, pulse width pw: 25us, pw: 1.0e-3, pw: 500.0000eV, max pw is 1.0e-3, DFT with pw: b3lyp-d3",
        "RuntimeError: bad fortune cookie: n=3, loss=nan at step 100 of training in model.py",
        "cookie: n=3, loss=nan at step 100, cookies: {'n': 3}, curl -b jar.txt -o a=b https://h",
        "password set to expire in 3 days, password reset to default, password set to 90 days, password set to 30-day expiry",
        "password to db01.example.org failed, set password to the value, sending the password to gpu-node12",
        "le mot de passe est expiré, mot de passe est requis, tokens set to 128, using token bucket 5",
        "nslcd: no available LDAP server found",
        "pull-request-1234, xai-client, r8_kernel_a100_v2, SG.1, glc_a, ntn_b, GET /services/a/b",
        "/home/u/workflows/TCGA/raw/sample_1.bam, /project/workflows/Training/run1/config.yaml: not found",
        "/data/services/TEST/BENCH/output.log /scratch/triggers/TrigA/evt/run.h5 /data/webhookb2/x",
        "https://github.com/o/r/actions/workflows/Test/main/badge.svg",
        "/data/sgp_20240501.nc glc_20240501.nc r8_20240501.dat ntn_experiment_20240501 pul-tensor_1234567890 hf_run_20240501.log",
        "r8_d41d8cd98f00b204e9800998ecf8427e glc_v2model_0a1b2c3d whsec_20240501",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    """Keys of dictionaries, tokens of language models, counts, names of files and errors."""
    assert secrets_in_text.masked(text) == text


_PARTS = st.sampled_from(
    [
        *"aZ1 =:'\"`\\[](){}<>,;&?@/._-*$\n\t|",
        *("***", "password", "pwd", "API_KEY", "key", "token", "secret", "--token", "pass", "None", "://", "user:pw@"),
        *("Authorization", "Bearer ", "Basic ", "token ", "curl -u ", "setenv ", "wandb login ", "mysql -p", "sshpass -p ", "login -p ", "docker ", "sk-", "hf_", "ghp_", "AKIA", "eyJ", "wandb_v1_", "SG."),
        *("is ", "my ", "with ", "API key", "passphrase ", "pw", "密码", "Cookie: ", "a=", "/services/T00/B00/", "/bot1234567890:AA", "8Q~", "MIT-MAGIC-COOKIE-1 "),
        *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", RANDOM, RANDOM.upper(), "str =", " = ", ": ", "\u00e4"),
    ]
)  # fmt: skip
_TEXTS = st.one_of(st.text(max_size=200), st.lists(_PARTS, max_size=24).map("".join))


@given(_TEXTS)
def test_a_second_time_changes_nothing(text: str) -> None:
    """A line is so treated by the agent, and by the verdict that quotes it."""
    once = secrets_in_text.masked(text)
    assert secrets_in_text.masked(once) == once


@given(_TEXTS)
def test_what_is_looked_at_no_further_has_no_secret(text: str) -> None:
    """Most text lacks the few signs that any secret has."""
    assert secrets_in_text.masked(text) == secrets_in_text._masked(text)


@given(_TEXTS)
def test_text_grows_by_half_at_most(text: str) -> None:
    """The mask is longer than a secret of one character."""
    assert len(secrets_in_text.masked(text)) <= len(text) * 3 // 2


@given(
    before=_TEXTS, name=st.sampled_from(["PASSWORD", "db_password", "API_KEY", "hf_token", "clientSecret"])
)
def test_no_text_before_it_hides_a_secret(before: str, name: str) -> None:
    """Whatever the line begins with."""
    assert "hunter2" not in secrets_in_text.masked(f"{before}\n{name}=hunter2")


_CHOSEN = st.from_regex(r"[A-Za-z][A-Za-z0-9!#%^&+_.-]{2,30}[0-9][A-Za-z!#]{0,8}", fullmatch=True)
"""Values as people choose passwords: of letters, with a digit. Names of check sums have this form too."""
_MADE = st.from_regex(r"[a-z][A-Za-z0-9]{10,40}[0-9][A-Za-z0-9]{10,40}", fullmatch=True)
"""Values that a program made."""
_OF_PASSWORDS = (
    "with password {}", "connect as bob with password {}, port 1", "password {}", "my password is {}", "the password was {}.", "password is '{}'",
    "password '{} {}'", "password: {}", "Passwort: {}", "Passwort ist {}", "Kennwort={}", "user_pw: {}", "my pw: {}", "my pw is {}", "DB_PASSWORD {}", "passphrase {}", "passphrase for bob is {}", "PASSWD={}",
    "mot de passe : {}", "密码：{}", "口令: {}", "contraseña: {}", "senha={}", "wachtwoord: {}", "lösenord: {}", "пароль: {}", "パスワード: {}", "비밀번호: {}",
    "Cookie: a={}; b={}", "Set-Cookie: a={}; Path=/", "{{'Cookie': 'a={}'}}", "redis://bob:{}@host/0", "sshpass -p {} ssh host", "--password {}",
)  # fmt: skip
_OF_CHOSEN = (
    "pw: {}",
    "pw='{}'",
    "password set to {}",
    "set password to {}!",
    "the DB password was changed to {}.",
)
_OF_KEYS = (
    "WANDB_API_KEY {}", "export WANDB_API_KEY\t{}", "HF_TOKEN {}", "access token {}", "Using token {}", "API key: {}", "cookies={{'session': '{}'}}", "curl -b a={} https://h", "your API key is {}", "access token: {}", "token is {}", "token is '{}'", "my token {} failed",
    "Authorization: Bearer {}", "--token {}", "https://host/x?token={}", "key={}", "wandb_v1_{}", "nvapi-{}", "hf_{}", "dckr_pat_{}", "hvs.{}", "glrt-{}",
    "https://hooks.slack.com/services/T0AB12CD/B0CD34EF/{}", "https://discord.com/api/webhooks/123456789012345678/{}", "wandb login {}",
)  # fmt: skip


@pytest.mark.parametrize("form", _OF_PASSWORDS)
@given(value=_CHOSEN.filter(lambda value: not re.fullmatch(r"(?i)sha[0-9]+|md5|base64|oauth2", value)))
def test_a_chosen_value_vanishes_from_every_form(form: str, value: str) -> None:
    """Whatever stands in front of it."""
    assert value not in secrets_in_text.masked(form.format(value, value))
    assert value not in secrets_in_text.masked(f"12:00:01 ERROR host1: {form.format(value, value)}")


@pytest.mark.parametrize("form", _OF_CHOSEN)
@given(value=st.from_regex(r"[A-Z]?[a-z]{5,16}[0-9]{1,8}!?", fullmatch=True))
def test_a_word_with_a_number_vanishes_where_a_plain_word_stays(form: str, value: str) -> None:
    """Behind a name that means more than a password, or a verb that means more than to give one."""
    assert value not in secrets_in_text.masked(form.format(value))
    assert secrets_in_text.masked(form.format("default")) == form.format("default")


@pytest.mark.parametrize("form", _OF_KEYS)
@given(value=_MADE)
def test_a_made_value_vanishes_from_every_form(form: str, value: str) -> None:
    """Also between other words."""
    assert value not in secrets_in_text.masked(form.format(value))
    assert value not in secrets_in_text.masked(f"12:00:01 ERROR host1: {form.format(value)}")


_HEX = "[a-f0-9]"
_KEYS = {
    "sk-": "[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}", "sk-ant-api03-": r"(?:[A-Za-z]{8}7-){9}AA", "sk_live_": "[a-zA-Z0-9]{24}", "rk_test_": "[a-zA-Z0-9]{24}",
    "hf_": "[A-Za-z]{34}", "api_org_": "[A-Za-z]{34}", "ghp_": "[0-9a-zA-Z]{36}", "ghs_": "[0-9a-zA-Z]{36}", "github_pat_": "[0-9A-Za-z]{22}_[0-9A-Za-z]{59}", "npm_": "[a-z0-9]{36}",
    "glpat-": "[0-9a-zA-Z]{20}", "gldt-": "[0-9a-zA-Z]{20}", "glptt-": f"{_HEX}{{40}}", "pypi-AgEIcHlwaS5vcmc": "[0-9a-zA-Z]{50}", "nvapi-": "[0-9a-zA-Z]{64}", "wandb_v1_": "[0-9a-zA-Z]{77}",
    "xoxb-": "[0-9]{11}-[0-9]{11}-[a-zA-Z0-9]{24}", "xoxp-": "(?:[0-9]{11}-){3}[a-f0-9]{32}", "xapp-": "1-A[A-Z0-9]{10}-[0-9]{13}-[a-z0-9]{64}",
    "AIza": "[0-9A-Za-z]{35}", "AKIA": "A[A-Z2-7]{15}", "ASIA": "A[A-Z2-7]{15}", "LTAI": "5t[A-Za-z0-9]{18}", "dapi": f"{_HEX}{{32}}", "AKCp": "[A-Za-z0-9]{69}", "ATATT3": "[A-Za-z0-9_-]{185}A",
    "eyJ": r"hbGciOi[A-Za-z0-9]{10}\.eyJ[A-Za-z0-9]{20}\.[A-Za-z0-9_-]{42}A", "SG.": r"[A-Za-z0-9]{22}\.[A-Za-z0-9_-]{42}A", "hvs.": "[A-Za-z0-9]{90}", "ya29.": "[A-Za-z0-9]{100}",
    "gsk_": "[A-Za-z0-9]{52}", "r8_": "[A-Za-z0-9]{37}", "dckr_pat_": "[A-Za-z0-9]{27}", "lin_api_": "[a-z0-9]{40}", "ntn_": "[0-9]{11}[A-Za-z0-9]{35}", "dop_v1_": f"{_HEX}{{64}}", "glc_": "e[A-Za-z0-9+/]{60}",
    "glsa_": f"[A-Za-z0-9]{{32}}_{_HEX}{{8}}", "sgp_": f"{_HEX}{{40}}", "sgp_local_": f"{_HEX}{{40}}", "pul-": f"{_HEX}{{40}}", "rubygems_": f"{_HEX}{{48}}", "sntryu_": f"{_HEX}{{64}}", "shpat_": f"{_HEX}{{32}}",
    "PMAK-": f"{_HEX}{{24}}-{_HEX}{{34}}", "pplx-": "[a-zA-Z0-9]{48}", "xai-": "[a-zA-Z0-9]{80}", "xkeysib-": f"{_HEX}{{64}}-[a-z0-9]{{16}}", "GOCSPX-": "[A-Za-z0-9]{28}", "sq0csp-": "[A-Za-z0-9]{43}",
    "pscale_pw_": "[A-Za-z0-9]{43}", "whsec_": "[A-Za-z0-9]{32}", "AGE-SECRET-KEY-1": "[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}", "ops_eyJ": "h[A-Za-z0-9+/]{250}",
}  # fmt: skip
"""What makers put behind their prefixes, as gitleaks has it; so many signs of base64 that one of its parts looks made."""
_FRONTS = st.lists(
    st.sampled_from(["", "x-", "my_", "https://h/", "key=", "hf_hub_", "sk-learn-", "\\n "])
    | st.builds("{}{}{}".format, st.sampled_from(["", "ta", "MS", "x."]), st.sampled_from(secret_forms._PREFIXES), st.sampled_from(["-", "."])),
    max_size=3,
).map("".join)  # fmt: skip
"""Words, prefixes and words that end as a prefix does."""


@pytest.mark.parametrize("prefix", _KEYS)
@given(front=_FRONTS, data=st.data())
def test_a_makers_key_vanishes_behind_any_word(prefix: str, front: str, data: st.DataObject) -> None:
    """A word that ends in a prefix (`task-`, `MSG.`) hides none."""
    key = data.draw(st.from_regex(_KEYS[prefix], fullmatch=True))
    assert key not in secrets_in_text.masked(f"{front}{prefix}{key}")


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "part",
    [
        "a", "A1a", "=", " ", "\n", '"', "\\", "-", "*", "://", "@", "key", "key=", "key ", "x.key_", "secret", "password=", 'password="', "token: ",
        "api_key=None ", "pwd=/", "sk-", "hf_a", "eyJa.", "curl ", "curl -u a", "Authorization: ", "Bearer ", "basic 1", "setenv a ", "?key=",
        "://a:", "://a:b@", ":x/", "wandb login ", "wandb login --a=", "sshpass -P a ", "sshpass -p", "mysql ", "mysql -p", "docker login a ",
        "-----", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "A1a\n", "<a ", "$A",
        "Cookie: ", "Cookie: a=", "password is ", "my password ", "api key ", "token 'a", "密码", "/services/T00/B00/", "/bot1234567890:AA", "a_1Q~", "wandb_v1_a", "eyJabcdef-", "hf_a1b2c3d4+", "+a", "sk-a-", "curl -b ", "curl -b a=", "cookies={", "password set to ", "set to ", "Cookie: a=b;", "passe est ", "pw: a1", "hooks.slack.com/services/", ":\\/\\/", ":\\/\\/a:b@", "/hooks/a1", "webhook=https://a",
    ],
)  # fmt: skip
def test_hostile_text_takes_time_in_proportion(part: str) -> None:
    """A pattern that went through the rest of the text at every place would take a minute, this a tenth of a second."""
    assert secrets_in_text.masked(part * (160_000 // len(part)))
