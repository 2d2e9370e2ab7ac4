"""``leadline topology``: the stages as data, held to the table of topics; tests/processors holds the wiring to them."""

from __future__ import annotations

from leadline.contracts.topics import TOPICS
from leadline.contracts.topology import STAGES
from tests.cli.run import leadline


def test_the_monitor_is_a_writer_of_what_its_stages_write_and_a_reader_of_what_they_read() -> None:
    by_name = {topic.name: topic for topic in TOPICS}
    for stage in STAGES:
        assert all("monitor" in by_name[name].writers for name in stage.writes)
        assert stage.reads not in by_name or "monitor" in by_name[stage.reads].readers


def test_json_and_the_picture_name_every_stage_and_topic() -> None:
    shown = leadline("topology").out
    data = leadline("topology", "--json").json
    assert [stage["name"] for stage in data["stages"]] == [stage.name for stage in STAGES]
    assert [topic["name"] for topic in data["topics"]] == [topic.name for topic in TOPICS]
    for name in [*(stage.name for stage in STAGES), *(topic.name for topic in TOPICS)]:
        assert name in shown
