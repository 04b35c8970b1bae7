/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/att_writer.h"

#include "sim/att_trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace cxlkv::sim {

bool AttWriter::add(uint32_t step, uint32_t head, uint32_t block, float mass)
{
	const uint32_t nr_heads = layers_ * kv_heads_, nr_blocks = step / tokens_per_block_ + 1;

	if (step >= AttTrace::max_steps || head >= nr_heads || block >= nr_blocks)
		return false;
	auto &row = steps_[step];
	row.resize(size_t{nr_heads} * nr_blocks);
	row[size_t{head} * nr_blocks + block] =
		static_cast<uint8_t>(std::lround(255 * std::sqrt(std::clamp(mass, 0.0f, 1.0f))));
	return true;
}

uint64_t AttWriter::file_bytes() const
{
	const uint64_t steps = nr_steps();

	return AttTrace::header_bytes +
	       uint64_t{layers_} * kv_heads_ * steps *
		       ((steps + tokens_per_block_ - 1) / tokens_per_block_);
}

Result<> AttWriter::save(const std::string &path) const
{
	const uint32_t steps = nr_steps(),
		       blocks = (steps + tokens_per_block_ - 1) / tokens_per_block_;
	const uint32_t header[] = {AttTrace::magic, layers_, kv_heads_,
				   steps,           blocks,  tokens_per_block_};
	std::ofstream file(path, std::ios::binary | std::ios::trunc);
	std::string row(blocks, '\0');

	if (!file)
		return sys_error(path);
	file.write(reinterpret_cast<const char *>(header), sizeof(header));
	for (uint32_t head = 0; head < layers_ * kv_heads_; head++)
		for (uint32_t step = 0; step < steps; step++) {
			std::fill(row.begin(), row.end(), '\0');
			if (auto it = steps_.find(step); it != steps_.end()) {
				const size_t nr = step / tokens_per_block_ + 1;
				std::copy_n(it->second.begin() + static_cast<ptrdiff_t>(head * nr),
					    nr, row.begin());
			}
			file.write(row.data(), static_cast<std::streamsize>(row.size()));
		}
	file.close();
	return file ? ok() : error(EIO, path + ": cannot be written");
}

} // namespace cxlkv::sim
