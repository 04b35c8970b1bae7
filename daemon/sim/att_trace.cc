/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/att_trace.h"

#include <cstring>

namespace cxlkv::sim {

bool AttTrace::is_att(const std::string &bytes)
{
	uint32_t first;
	if (bytes.size() < header_bytes)
		return false;
	memcpy(&first, bytes.data(), sizeof(first));
	return first == magic;
}

Result<AttTrace> AttTrace::parse(std::string bytes)
{
	if (!is_att(bytes))
		return error(EINVAL, "not an .att file: wrong magic, or shorter than its header");
	uint32_t header[6];
	memcpy(header, bytes.data(), sizeof(header));
	AttTrace trace;
	trace.layers = header[1];
	trace.kv_heads = header[2];
	trace.steps = header[3];
	trace.blocks = header[4];
	trace.tokens_per_block = header[5];
	const struct {
		const char *what;
		uint32_t value, max;
	} fields[] = {{"layers", trace.layers, 1024},
		      {"KV heads", trace.kv_heads, 1024},
		      {"steps", trace.steps, max_steps},
		      {"blocks", trace.blocks, (1 << 20) - 1},
		      {"tokens per block", trace.tokens_per_block, 1 << 20}};
	for (const auto &field : fields)
		if (field.value < 1 || field.value > field.max)
			return error(EINVAL, std::string(field.what) + " is " +
						     std::to_string(field.value) + ", allowed 1.." +
						     std::to_string(field.max));
	/* At most 2^20 * 2^24 * (2^20 - 1): fits 64 bits, just. */
	uint64_t wanted = uint64_t{trace.layers} * trace.kv_heads * trace.steps * trace.blocks;
	if (bytes.size() - header_bytes != wanted)
		return error(EINVAL, std::to_string(bytes.size() - header_bytes) +
					     " bytes of attention, the header says " +
					     std::to_string(wanted));
	if ((trace.steps - 1) / trace.tokens_per_block >= trace.blocks)
		return error(EINVAL, "more steps than its blocks have tokens");
	trace.bytes_ = std::move(bytes);
	return trace;
}

} // namespace cxlkv::sim
