"""Settings: the file, the environment variables over it, and errors that name the wrong key."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairsync.errors import InvalidInputError
from fairsync.ledger import Retention, SqlLedger
from fairsync.service.settings import load_settings, parse_settings

EXAMPLES = sorted((Path(__file__).parents[2] / "deploy").glob("*.toml"))
PLAIN = '[catalog]\npath = "items"\n'


def load(tmp_path: Path, text: str, **environ: str) -> object:
    path = tmp_path / "service.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, environ)


def test_every_key_but_the_catalog_has_a_default(tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    path.write_text(PLAIN)
    settings = load_settings(path, {})
    assert settings.catalog.path == tmp_path / "items"
    assert settings.ledger.url == f"sqlite:///{tmp_path}/fairsync.db"
    assert settings.ledger.retention == Retention()
    assert (settings.http.host, settings.promise.k, settings.promises, settings.is_open) == ("127.0.0.1", 20, [], True)


def test_environment_variables_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    path.write_text(PLAIN + "[http]\nport = 1\n[promise]\nk = 5\n")
    names = {"FAIRSYNC_HTTP_PORT": "9000", "FAIRSYNC_LEDGER_URL": "memory://", "FAIRSYNC_DATA": "unrelated"}
    settings = load_settings(path, names)
    assert (settings.http.port, settings.ledger.url, settings.promise.k) == (9000, "memory://", 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "catalog.path: is missing"),
        ("[catalog]\n", "catalog.path: is missing"),
        (PLAIN + "[http]\nprot = 1\n", r"http.prot: is not a setting; did you mean 'port'\?$"),
        (PLAIN + "[htpp]\nport = 1\n", "htpp: is not a setting; did you mean 'http'"),
        (PLAIN + "[http]\nport = 99999\n", "http.port: expected `int` <= 65535"),
        (PLAIN + "[ledger]\nkind = 'sqlite'\n", "ledger.kind: is not a setting"),
        (PLAIN + "[ledger]\nurl = 'redis://db'\n", "a URL that begins with redis:// is no ledger: write sqlite"),
        (PLAIN + "[ledger]\nurl = 'postgresql://db/shop?schema=a b'\n", "is no plain name of a Postgres schema"),
        (PLAIN + "[ledger]\nanswers_seconds = 0\n", "ledger.answers_seconds: expected `float` > 0"),
        (PLAIN + "[ledger]\nknown_ids = 0\n", "ledger.known_ids: expected `int` >= 1"),
        (PLAIN + "[http]\nhost = '0.0.0.0'\n", "others can reach.*tokens"),
        (PLAIN + "[promise]\nk = 2000\n", "promise.k is 2000, above http.max_k"),
        (
            PLAIN + "[[tokens]]\nname = 'a'\nroles = ['boss']\nenv = 'A'\n",
            r"tokens\[0\].roles\[0\]: expected one of 'retrieve', 'report', 'admin'",
        ),
        (
            PLAIN + "[[tokens]]\nname = 'a'\nroles = []\nenv = 'A'\n",
            r"tokens\[0\].roles: expected `array` of length >= 1",
        ),
        (PLAIN + "[[tokens]]\nname = 'a'\nroles = ['admin']\n", r"tokens\[0\]: give either 'sha256' or 'env'"),
        (PLAIN + "[[tokens]]\nname = 'a'\nroles = ['admin']\nsha256 = 'secret'\n", r"tokens\[0\].sha256"),
        (PLAIN + "[[promises]]\ngroup = 'a'\nfloor = 1\n", r"promises\[0\].window: is missing"),
        (PLAIN + "[[promises]]\ngroup = 'a'\nfloor = 1\nwindow = {evry = 'day'}\n", "did you mean 'every'"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_mistake_is_reported_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        load(tmp_path, text)


def test_dates_of_toml_become_text(tmp_path: Path) -> None:
    window = "window = {every = 'campaign', zone = 'Europe/Berlin', start = 2026-03-01, end = 2026-03-14}"
    path = tmp_path / "service.toml"
    path.write_text(PLAIN + f"[[promises]]\ngroup = 'a'\nfloor = 1\n{window}\n")
    (promise,) = load_settings(path, {}).promises
    assert str(promise.window.start) == "2026-03-01"
    assert str(promise.window.end) == "2026-03-14"


def test_the_ledger_may_be_given_by_its_url_alone(tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    path.write_text('ledger = "postgresql://me:my-secret@db/shop?schema=promises"\n' + PLAIN)
    assert load_settings(path, {}).ledger.url == "postgresql://me:my-secret@db/shop?schema=promises"
    path.write_text('ledger = "sqlite:////var/lib/exposures.db"\n' + PLAIN)
    assert load_settings(path, {}).ledger.url == "sqlite:////var/lib/exposures.db"


def test_how_long_answers_are_saved_is_set(tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    path.write_text(PLAIN + "[ledger]\nanswers_seconds = 60\nanswers_bytes = 1000\n")
    settings = load_settings(path, {"FAIRSYNC_LEDGER_KNOWN_IDS": "10"})
    assert settings.ledger.retention == Retention(seconds=60, max_bytes=1000, max_ids=10)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:my-secret@db/shop",
        "postgresql://me:my-secret@db:port/shop",
        "postgresql://me:my-secret@db/shop?nonsense=1",
        "postgresql://me:my-secret/1@db/shop",
        "postgresql://me:1/my-secret@db/shop",
        "postgresql://me:my-secret#1@db/shop",
        "postgresql://me:my-secret?1@db/shop",
    ],
)
def test_the_password_of_a_ledger_is_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        load(tmp_path, PLAIN + f"[ledger]\nurl = '{url}'\n")
    assert "my-secret" not in str(error.value)


def test_the_password_of_a_ledger_of_another_kind_is_not_repeated() -> None:
    with pytest.raises(InvalidInputError) as error:
        SqlLedger("mysql://me:my-secret@db/shop", 3, shared=True)
    assert "my-secret" not in str(error.value)


@pytest.mark.parametrize("key", ["sha256 = 'my-secret'", "roles = ['my-secret']", "per_second = 'my-secret'"])
def test_a_wrong_value_is_not_repeated_because_it_may_be_a_secret(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        load(tmp_path, PLAIN + f"[[tokens]]\nname = 'a'\n{key}\n")
    assert "my-secret" not in str(error.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as error:
        load(tmp_path, "[http]\nport = -1\nprot = 1\n[traffic]\nworst_case = 2\n", FAIRSYNC_PROMISE_K="0")
    for key in ("http.port:", "http.prot:", "traffic.worst_case:", "set by FAIRSYNC_PROMISE_K"):
        assert key in str(error.value)


def test_a_misspelled_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="FAIRSYNC_HTTP_PROT names no setting: did you mean FAIRSYNC_HTTP_PORT"):
        load(tmp_path, PLAIN, FAIRSYNC_HTTP_PROT="1")


def test_a_mistake_in_a_variable_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"http\.port, set by FAIRSYNC_HTTP_PORT: expected `int`, got `str`"):
        load(tmp_path, PLAIN, FAIRSYNC_HTTP_PORT="many")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no file"):
        load_settings(tmp_path / "nothing.toml", {})
    with pytest.raises(InvalidInputError, match=r"cannot be read .*: name a TOML file"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_in_deploy_are_valid(path: Path) -> None:
    resolved = load_settings(path, {}).catalog.path
    assert resolved is not None
    assert resolved.is_absolute()


def test_the_examples_in_deploy_are_found() -> None:
    assert [path.stem for path in EXAMPLES] == ["compose", "one-process", "ray", "replicas"]


@pytest.mark.parametrize("cold", ["mean", [0.5, 1.0], [3, 4], ["tea-1", "jam-7"]])
def test_the_fallback_for_cold_users(cold: object) -> None:
    given = {"catalog": {"path": "items"}, "ledger": "memory://", "promise": {"cold": cold, "count_cold": False}}
    settings = parse_settings(given)
    assert repr((settings.promise.cold, settings.promise.count_cold)) == repr((cold, False))  # 3 is not 3.0 here
    assert parse_settings({**given, "promise": {}}).promise.cold == "mean"
    refused: list[object] = ["median", [], 3]
    for wrong in refused:
        with pytest.raises(InvalidInputError, match="cold"):
            parse_settings({**given, "promise": {"cold": wrong}})
