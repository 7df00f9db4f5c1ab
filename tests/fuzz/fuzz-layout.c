/*
 * A layout off the wire: unpacked, checked, derived, hashed, compared, packed again.
 *
 * Whatever the bytes are: a layout is refused with a reason, or it comes back from its own
 * message with the same hash and no field that differs. Thread: one.
 */
#include <string.h>

#include "proto/errbuf.h"
#include "proto/layout.h"
#include "proto/layout_wire.h"
#include "tests/fuzz/target.h"

static void check_round_trip(const struct kv_layout *layout)
{
	Kv__Wire__Layout *wire = kv_layout_to_wire(layout);
	struct kv_layout *again;
	struct errbuf err = {0};

	must(wire != NULL);
	again = kv_layout_from_wire(wire, &err);
	must(again != NULL);
	must(memcmp(layout->hash, again->hash, KV_HASH_BYTES) == 0);
	must(kv_layout_differs(layout, again, &err) == 0);
	kv_layout_free(again);
	kv_layout_wire_free(wire);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Kv__Wire__Layout *wire = kv__wire__layout__unpack(NULL, size, data);
	struct errbuf err = {0};
	struct kv_layout *layout;

	if (!wire)
		return 0;
	layout = kv_layout_from_wire(wire, &err);
	if (layout)
		check_round_trip(layout);
	kv_layout_free(layout);
	kv__wire__layout__free_unpacked(wire, NULL);
	return 0;
}
