/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a userfaultfd event means for a block in each of its states, and what is done at once. */
#pragma once

#include "sys/restore.h"
#include "sys/spill.h"

struct uffd_msg;

namespace cxlkv {

class FaultEvents {
public:
	FaultEvents(Ledger &ledger, Spiller &spiller, Restorer &restorer);

	/* Reads and handles what waits, at most a few batches; false: more may wait. */
	bool drain(ServedArena &served);

private:
	void handle(ServedArena &served, const uffd_msg &msg);
	void missing(ServedArena &served, uint32_t block, uint64_t address);
	void minor(ServedArena &served, uint32_t block, uint64_t address);
	void written(ServedArena &served, uint32_t block);
	void not_in_memory(ServedArena &served, uint32_t block);

	Ledger &ledger_;
	Spiller &spiller_;
	Restorer &restorer_;
};

} // namespace cxlkv
