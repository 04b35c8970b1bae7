/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Serves a workload of conversations on one kind of KV memory and says how it went. */
#pragma once

#include "engine/conversation.h"
#include "engine/kv_memory.h"
#include "engine/text.h"
#include "engine/transcript.h"
#include "engine/workload.h"

#include <string>
#include <vector>

namespace cxlkv::engine {

struct RunOptions {
	WorkloadOptions workload;
	bool arena = false;
	ArenaSettings arena_settings;
	KvType kv_type = KvType::F16;
	uint32_t tokens_per_block = 64;
	uint32_t score_every = 8; /* steps */
	std::string gaps_file;    /* turns come after gaps like those */
	std::string replay_file;  /* turns come as in this trace; neither: one after the other */
	double gap_scale = 0.001; /* of a real gap */
	bool decide = false; /* a conversation that is computed sooner than fetched is computed */
	bool reuse = false;  /* of what conversations that begin alike have computed; needs arena */
};

struct RunResult {
	std::vector<Record> records; /* one a conversation */
	Counters counters;
	KvStats kv;
	PrefixStats prefixes;
	uint64_t kv_blocks = 0, kv_bytes = 0; /* that the conversations hold at the end */
	uint64_t nr_page_faults = 0;          /* of this process, minor and major */
	double seconds = 0;
};

/* A line of progress goes to stderr once a second. */
Result<RunResult> run(const RunOptions &options, const Model &model, const Text &text);

/* For people and, in the same words, for programs. */
std::string summary_text(const RunResult &result);
std::string summary_json(const RunResult &result);

} // namespace cxlkv::engine
