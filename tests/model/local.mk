# The commit protocol as a model, run by random interleavings (head of protocol_sim.py).

script_tests += tests/model/protocol_sim.py
EXTRA_DIST += \
	tests/model/client.py \
	tests/model/core.py \
	tests/model/memory.py \
	tests/model/parts.py \
	tests/model/reader.py \
	tests/model/replay.py \
	tests/model/rules.py \
	tests/model/scenarios.py \
	tests/model/serve.py \
	tests/model/shared.py \
	tests/model/steps.py \
	tests/model/truth.py \
	tests/model/undo.py \
	tests/model/world.py
