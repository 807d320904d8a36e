"""What a node process is told by its environment."""

from elastic_ps.node.settings import NodeSettings


def test_the_environment_names_the_machine(tmp_path):
    (tmp_path / "token").write_text("00" * 16)
    environment = {"ELASTIC_COORDINATOR": "h:1", "ELASTIC_TOKEN_FILE": str(tmp_path / "token")}
    assert NodeSettings.from_environment(environment).machine == ""
    assert NodeSettings.from_environment({**environment, "ELASTIC_MACHINE": "node-1"}).machine == "node-1"
