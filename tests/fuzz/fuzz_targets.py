"""The table of fuzz targets: each takes any bytes; whatever it raises is a defect.

Garbage gives the typed error or a value, never anything else, in bounded time and size. The tests
here replay examples through all of them; ``run_atheris.py`` searches for more.
"""

from __future__ import annotations

from tests.fuzz import (
    accounts_target,
    agent_target,
    carriers_target,
    chat_targets,
    description_target,
    dialog_targets,
    e2e_target,
    gate_target,
    hearing_target,
    latency_target,
    listening_target,
    media_targets,
    offer_target,
    phone_config_target,
    plugin_targets,
    recogniser_target,
    record_targets,
    reference_target,
    rest_target,
    runvnc_target,
    safety_targets,
    sip_targets,
    softphone_target,
    speech_targets,
    stream_targets,
    upstream_target,
    vllm_omni_target,
    voice_targets,
)
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    **accounts_target.TARGETS,
    **media_targets.TARGETS,
    **sip_targets.TARGETS,
    **agent_target.TARGETS,
    **carriers_target.TARGETS,
    **chat_targets.TARGETS,
    **description_target.TARGETS,
    **dialog_targets.TARGETS,
    **e2e_target.TARGETS,
    **gate_target.TARGETS,
    **hearing_target.TARGETS,
    **latency_target.TARGETS,
    **listening_target.TARGETS,
    **offer_target.TARGETS,
    **phone_config_target.TARGETS,
    **plugin_targets.TARGETS,
    **recogniser_target.TARGETS,
    **record_targets.TARGETS,
    **reference_target.TARGETS,
    **rest_target.TARGETS,
    **runvnc_target.TARGETS,
    **safety_targets.TARGETS,
    **softphone_target.TARGETS,
    **speech_targets.TARGETS,
    **stream_targets.TARGETS,
    **upstream_target.TARGETS,
    **vllm_omni_target.TARGETS,
    **voice_targets.TARGETS,
}
