"""What a benchmark learnt is found again under the same settings only."""

from benchmarks.support.kept import settings_key
from dl2_scheduler.learning.placement.harmony.run import HarmonySettings
from dl2_scheduler.learning.placement.placer_run import PlacerSettings


def test_other_settings_have_other_keys():
    several = [PlacerSettings(), PlacerSettings(updates=5), HarmonySettings(), HarmonySettings(replay=0)]
    keys = {settings_key(each, 20) for each in several}
    assert len(keys) == 4
    assert settings_key(PlacerSettings(), 20) in keys
    assert settings_key(PlacerSettings(), 21) not in keys
