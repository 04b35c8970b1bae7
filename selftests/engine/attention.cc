/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/attention.h"
#include "engine/decoder.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>

namespace cxlkv::engine {

namespace {

constexpr int32_t magic = 0x4B564154;

uint8_t quantise(float mass)
{
	return static_cast<uint8_t>(std::lround(255 * std::sqrt(std::clamp(mass, 0.0f, 1.0f))));
}

Result<> write_file(const std::string &path, const KvShape &shape,
		    const std::vector<uint8_t> &masses)
{
	const auto i32 = [](uint32_t v) { return static_cast<int32_t>(v); };
	const int32_t header[] = {magic,
				  i32(shape.layers),
				  i32(shape.heads / shape.layers),
				  i32(shape.max_tokens),
				  i32(shape.blocks_per_head()),
				  i32(shape.tokens_per_block)};
	std::ofstream out(path, std::ios::binary | std::ios::trunc);

	if (!out)
		return sys_error(path);
	out.write(reinterpret_cast<const char *>(header), sizeof(header));
	out.write(reinterpret_cast<const char *>(masses.data()),
		  static_cast<std::streamsize>(masses.size()));
	out.close();
	if (!out)
		return error(EIO, path + ": write failed");
	return ok();
}

} // namespace

Result<> record_attention(const AttentionOptions &options, const Model &model, const Text &text,
			  const std::string &path)
{
	Result<KvShape> shape =
		KvShape::create(model.shape, options.tokens_per_block, options.tokens, KvType::F16);
	if (!shape)
		return shape.error();
	if (options.offset > text.size() || options.tokens > text.size() - options.offset)
		return error(EINVAL,
			     fmt::format("{} tokens at {} are outside the text, which has {}",
					 options.tokens, options.offset, text.size()));

	const size_t steps = options.tokens, blocks = shape->blocks_per_head();
	std::vector<std::byte> kv(shape->slot_bytes());
	std::vector<uint8_t> masses(shape->heads * steps * blocks);
	Decoder decoder(model, *shape);
	Masses now;
	for (uint32_t t = 0; t < options.tokens; t++) {
		decoder.forward(std::span(text).subspan(options.offset + t, 1), t, kv.data(), &now);
		for (uint32_t h = 0; h < shape->heads; h++)
			std::transform(now.head(h), now.head(h) + now.nr_blocks,
				       &masses[(h * steps + t) * blocks], quantise);
	}
	return write_file(path, *shape, masses);
}

} // namespace cxlkv::engine
