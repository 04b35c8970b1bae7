/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Taking over an arena, fresh or left behind by a daemon that died: docs/spill-protocol.md, "A new
 * manager". */
#pragma once

#include "sys/restore.h"

namespace cxlkv {

/*
 * Un-protects everything, finds out where each block is, tells the client, and
 * wakes all of its blocked threads; events may be read only after that. Blocks
 * that are half there are queued with the restorer.
 */
Result<> attach(ServedArena &served, SpillStore &store, Restorer &restorer,
		const FaultServerOptions &options);

} // namespace cxlkv
