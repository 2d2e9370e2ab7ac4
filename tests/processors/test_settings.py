from __future__ import annotations

from pathlib import Path

import pytest

from leadline.errors import SettingsError
from leadline.processors.credentials import aiokafka_config
from leadline.settings import Settings, client_configs, describe_settings, load_settings, suggested, unknown_variables


def test_defaults_need_no_environment() -> None:
    assert load_settings({}) == Settings()


def test_environment_and_overrides() -> None:
    """An override wins over the environment; ``None`` is no override; an empty variable counts as absent."""
    environ = {
        "LEADLINE_BOOTSTRAP": " kafka-1:9092 , [::1]:9093 ",
        "LEADLINE_PARTITIONS": "12",
        "LEADLINE_LOG_JSON": "yes",
        "LEADLINE_LOG_LEVEL": "debug",
        "LEADLINE_APP_ID": "",
    }
    settings = load_settings(environ, partitions=3, data_dir="/tmp/there", instance_id=None)
    assert settings.bootstrap == "kafka-1:9092,[::1]:9093"
    assert settings.partitions == 3
    assert settings.log_json is True
    assert settings.log_level == "DEBUG"
    assert settings.data_dir == Path("/tmp/there")
    assert settings.app_id == "leadline"
    assert client_configs(settings).confluent["bootstrap.servers"] == "kafka-1:9092,[::1]:9093"
    assert aiokafka_config(settings)["bootstrap_servers"] == ["kafka-1:9092", "[::1]:9093"]


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("LEADLINE_BOOTSTRAP", "kafka", "host:port"),
        ("LEADLINE_BOOTSTRAP", "kafka:99999", "host:port"),
        ("LEADLINE_BOOTSTRAP", "a:1,,b:2", "empty"),
        ("LEADLINE_BOOTSTRAP", "http://kafka:9092", "host:port"),
        ("LEADLINE_PARTITIONS", "0", "from 1"),
        ("LEADLINE_PARTITIONS", "eight", "whole number"),
        ("LEADLINE_BROKER_AWAY_S", "soon", "seconds"),
        ("LEADLINE_BROKER_AWAY_S", "nan", "out of range"),
        ("LEADLINE_LOG_JSON", "perhaps", "true or false"),
        ("LEADLINE_LOG_LEVEL", "loud", "INFO"),
        ("LEADLINE_APP_ID", "two words", "name"),
        ("LEADLINE_DATA_DIR", __file__, "file"),
    ],
)
def test_a_wrong_value_is_named_with_what_to_do(variable: str, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({variable: text})
    sentence = str(caught.value)
    assert sentence.startswith(variable)
    assert says in sentence
    assert sentence.endswith(".")


def test_a_wrong_option_is_named_as_the_option() -> None:
    with pytest.raises(SettingsError, match=r"^--bootstrap is '': no server is named\. Give host:port"):
        load_settings({"LEADLINE_BOOTSTRAP": "kafka:9092"}, bootstrap="")


def test_a_verb_that_is_suggested_is_for_the_cluster_at_hand() -> None:
    """As it can be given to a shell; the default address is left out."""
    assert suggested("topics check", load_settings({})) == "`leadline topics check`"
    assert suggested("top", load_settings({"LEADLINE_BOOTSTRAP": "k:1,l:2"})) == "`leadline top --bootstrap k:1,l:2`"
    assert suggested("top", load_settings({}, bootstrap="[::1]:9092")) == "`leadline top --bootstrap '[::1]:9092'`"


def test_variables_that_are_no_settings_are_told() -> None:
    """With the one that was meant, where it is near; what belongs to others is left alone."""
    environ = {"LEADLINE_BOOTSTAP": "kafka:9092", "LEADLINE_FOO": "1", "LEADLINE_DRAIN_S": "5", "PATH": "/bin"}
    assert unknown_variables(environ) == [
        "LEADLINE_BOOTSTAP is no setting and does nothing; LEADLINE_BOOTSTRAP is",
        "LEADLINE_FOO is no setting and does nothing",
    ]


def test_every_setting_is_described() -> None:
    names = [name for name, _ in describe_settings()]
    assert "LEADLINE_BOOTSTRAP" in names
    assert len(names) == len(set(names)) == len(Settings.__dataclass_fields__)


def test_a_secret_in_a_wrong_setting_is_not_shown() -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"LEADLINE_BOOTSTRAP": "kafka://user:hunter2@h:9092"})
    assert "hunter2" not in str(refused.value)
