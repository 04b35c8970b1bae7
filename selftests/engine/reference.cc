/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/reference.h"
#include "engine/decoder.h"
#include "engine/text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cxlkv::engine {

namespace {

using nlohmann::json;

constexpr uint32_t mass_tokens = 64; /* reference.json sums the mass over so many tokens */

struct Case {
	size_t offset = 0;
	uint32_t prompt_bytes = 0;
	std::vector<float> logits;
	std::vector<std::vector<std::vector<float>>> mass; /* [layer][KV head][block] */
	std::vector<uint8_t> greedy;
};

/* The text is written as Latin-1: one character below 256 a byte. */
Result<std::vector<uint8_t>> latin1_bytes(const std::string &utf8)
{
	std::vector<uint8_t> bytes;

	for (size_t i = 0; i < utf8.size(); i++) {
		auto c = static_cast<uint8_t>(utf8[i]);
		if (c >= 0x80) {
			if (c > 0xc3 || i + 1 == utf8.size())
				return error(EINVAL, "greedy text is not Latin-1");
			c = static_cast<uint8_t>((c & 3) << 6 | (utf8[++i] & 0x3f));
		}
		bytes.push_back(c);
	}
	return bytes;
}

Result<Case> read_case(const json &j)
{
	Case c;

	c.offset = j.at("offset").get<size_t>();
	c.prompt_bytes = j.at("prompt_bytes").get<uint32_t>();
	c.logits = j.at("logits_after_prompt").get<std::vector<float>>();
	j.at("attention_last").get_to(c.mass);
	Result<std::vector<uint8_t>> greedy = latin1_bytes(j.at("greedy").get<std::string>());
	if (!greedy)
		return greedy.error();
	c.greedy = std::move(*greedy);
	return c;
}

Result<std::vector<Case>> read_cases(const std::string &path)
{
	std::ifstream in(path);
	if (!in)
		return sys_error(path);
	std::vector<Case> cases;
	try {
		const json file = json::parse(in);
		for (const json &j : file.at("cases")) {
			Result<Case> c = read_case(j);
			if (!c)
				return c.error().in(path);
			cases.push_back(std::move(*c));
		}
	} catch (const json::exception &e) {
		return error(EINVAL, fmt::format("{}: {}", path, e.what()));
	}
	return cases;
}

/* NaN compares as nothing; here it is the largest error. */
double worse(double worst, double a, double b)
{
	const double difference = std::fabs(a - b);
	return std::isnan(difference) ? INFINITY : std::max(worst, difference);
}

/* Infinity where the shapes differ: that is wrong, not close. */
double mass_error(const Case &c, const ModelShape &shape, const Masses &masses)
{
	double worst = 0;

	if (c.mass.size() != shape.layers)
		return INFINITY;
	for (uint32_t l = 0; l < shape.layers; l++) {
		if (c.mass[l].size() != shape.kv_heads)
			return INFINITY;
		for (uint32_t h = 0; h < shape.kv_heads; h++) {
			const std::vector<float> &want = c.mass[l][h];
			if (want.size() != masses.nr_blocks)
				return INFINITY;
			for (uint32_t b = 0; b < masses.nr_blocks; b++)
				worst = worse(worst, want[b],
					      masses.head(l * shape.kv_heads + h)[b]);
		}
	}
	return worst;
}

double logit_error(const Case &c, std::span<const float> logits)
{
	double worst = c.logits.empty() || c.logits.size() > logits.size() ? INFINITY : 0;

	for (size_t i = 0; i < std::min(c.logits.size(), logits.size()); i++)
		worst = worse(worst, c.logits[i], logits[i]);
	return worst;
}

Result<> check_case(const Case &c, const Model &model, KvType type, const Text &text,
		    ReferenceResult *result)
{
	if (c.offset > text.size() || c.prompt_bytes < 1 || c.prompt_bytes > text.size() - c.offset)
		return error(EINVAL, fmt::format("a prompt of {} bytes at {} is outside the text",
						 c.prompt_bytes, c.offset));
	const uint32_t tokens = c.prompt_bytes + static_cast<uint32_t>(c.greedy.size());
	Result<KvShape> shape =
		KvShape::create(model.shape, mass_tokens,
				(tokens + mass_tokens - 1) / mass_tokens * mass_tokens, type);
	if (!shape)
		return shape.error();
	std::unique_ptr<KvMemory> memory = make_plain_memory(*shape, 1);
	if (Result<> r = memory->open_slot(0); !r)
		return r.error();

	Decoder decoder(model, *shape);
	Masses masses;
	decoder.forward(std::span(text).subspan(c.offset, c.prompt_bytes), 0, memory->address(0),
			&masses);
	result->logit_error = std::max(result->logit_error, logit_error(c, decoder.logits()));
	result->mass_error = std::max(result->mass_error, mass_error(c, model.shape, masses));

	std::vector<uint8_t> said;
	while (said.size() < c.greedy.size()) {
		said.push_back(decoder.best());
		const uint32_t at = c.prompt_bytes + static_cast<uint32_t>(said.size()) - 1;
		decoder.forward(std::span(said).last(1), at, memory->address(0), nullptr);
	}
	result->nr_cases++;
	result->nr_text_equal += said == c.greedy;
	return ok();
}

} // namespace

Result<ReferenceResult> check_reference(const Model &model, KvType type,
					const std::string &reference_path,
					const std::string &text_path)
{
	Result<Text> text = read_text(text_path);
	if (!text)
		return text.error();
	Result<std::vector<Case>> cases = read_cases(reference_path);
	if (!cases)
		return cases.error();

	ReferenceResult result;
	for (const Case &c : *cases)
		if (Result<> r = check_case(c, model, type, *text, &result); !r)
			return r.error().in(reference_path);
	return result;
}

} // namespace cxlkv::engine
