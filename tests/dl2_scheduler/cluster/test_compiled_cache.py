"""Where compiled functions are kept."""

from dl2_scheduler.cluster.compiled import cache_folder


def test_what_other_sources_compiled_to_is_not_read_and_removed(tmp_path):
    source = tmp_path / "a.py"
    source.write_text("one")
    first = cache_folder([source], tmp_path)
    first.mkdir()
    assert cache_folder([source], tmp_path) == first
    assert first.is_dir()
    source.write_text("two")
    assert cache_folder([source], tmp_path) != first
    assert not first.exists()
    assert source.exists()
