/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control_format.h"

#include "base/log.h"
#include "control_line.h"

#include <algorithm>
#include <map>

namespace cxlkv {

using nlohmann::json;

Result<ColdFormat> get_cold_format(const json &in, const std::string &by_default)
{
	static const std::map<std::string, codec::Source> sources{{"fp16", codec::Source::Fp16},
								  {"bf16", codec::Source::Bf16}};
	static const std::map<std::string, codec::Format> formats{{"fp8", codec::Format::Fp8},
								  {"int8", codec::Format::Int8},
								  {"int4", codec::Format::Int4}};
	std::string elem_type = get_text(in, "elem_type"), chosen = get_text(in, "cold_format");
	std::string name = chosen.empty() ? by_default : chosen;

	if (!elem_type.empty() && !sources.contains(elem_type))
		return error(EINVAL, "elem_type must be fp16 or bf16");
	if (name != "raw" && !formats.contains(name))
		return error(EINVAL, "cold_format must be raw, fp8, int8 or int4");
	if (name == "raw" || elem_type.empty())
		return ColdFormat::Raw;
	return cold_format(formats.at(name), sources.at(elem_type));
}

void set_cold_format(Arena &arena, ColdFormat format)
{
	const Geometry &g = arena.geometry;

	arena.cold_format = format;
	if (format != ColdFormat::Raw && !stored_bytes(g, format))
		log_warning("arena {}: blocks of {} tokens x {} elements of {} bytes do not get "
			    "smaller as {}; they are stored as they are",
			    arena.options.number, g.tokens_per_block, g.head_dim, g.elem_bytes,
			    name_of(format));
}

json show(const codec::ErrorStats &error)
{
	if (error.signal == 0)
		return {{"nmse", nullptr}, {"cosine", nullptr}};
	return {{"nmse", error.nmse()}, {"cosine", error.cosine()}};
}

json show_cold_format(const Arena &arena)
{
	ColdFormat format = arena.cold_format;
	uint32_t bytes = stored_bytes(arena.geometry, format);
	auto heads = arena.head_errors.all();
	codec::ErrorStats sum;
	auto worst = std::ranges::max_element(heads, {}, &codec::ErrorStats::nmse);

	for (const codec::ErrorStats &head : heads)
		sum.add(head);
	json out = show(sum);
	out["name"] = name_of(bytes ? format : ColdFormat::Raw);
	out["block_bytes"] = bytes ? bytes : arena.geometry.block_bytes;
	out["encoded_blocks"] = arena.nr_encoded.load();
	out["not_encoded_blocks"] = arena.nr_not_encoded.load();
	out["worst_nmse"] = heads.empty() ? json() : json(worst->nmse());
	out["worst_head"] = heads.empty() ? json() : json(worst - heads.begin());
	return out;
}

} // namespace cxlkv
