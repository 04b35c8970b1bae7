/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv plan: sizes, times and cost of a deployment, from a model of it. Needs no daemon. */
#include "base/json_from.h"
#include "base/result.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/json_text.h"
#include "cli/plan_rows.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace cxlkv {

namespace {

using nlohmann::json;

/* A field of config.json: a whole number in range, or absent. */
Result<std::optional<uint32_t>> field(const json &config, const char *name)
{
	if (!config.contains(name) || config[name].is_null())
		return std::optional<uint32_t>();
	if (!config[name].is_number_unsigned() || config[name] < 1 || config[name] > (1 << 20))
		return error(EINVAL,
			     fmt::format("{} is {}, it has to be a whole number from 1 to 1048576",
					 name, json_text(config[name])));
	return std::optional<uint32_t>(config[name].get<uint32_t>());
}

Result<double> element_bytes(const json &config)
{
	static const std::pair<const char *, double> types[] = {
		{"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"float8_e4m3fn", 1}, {"int8", 1}};

	for (const char *key : {"dtype", "torch_dtype"}) { /* the new name and the old one */
		if (!config.contains(key) || !config[key].is_string())
			continue;
		for (const auto &[name, bytes] : types)
			if (config[key] == name)
				return bytes;
		return error(EINVAL, fmt::format("{} {} is not known; use --elem-bytes", key,
						 json_text(config[key])));
	}
	return 2.0;
}

/* The shape in a Hugging Face config.json. */
Result<KvShape> shape_of_config(const std::string &path)
{
	auto read = json_from_file(path);
	if (!read && read.error().code == EINVAL)
		return read.error();
	if (!read)
		return error(read.error().code,
			     read.error().what + "; it is not llama-70b or llama-8b either");
	json config = std::move(*read);
	if (!config.is_object())
		return error(EINVAL, path + ": not a JSON object");
	if (auto text = config.find("text_config"); text != config.end() && text->is_object())
		config = json(*text); /* of a model that also sees or hears */

	auto layers = field(config, "num_hidden_layers"),
	     heads = field(config, "num_attention_heads");
	auto kv_heads = field(config, "num_key_value_heads"), hidden = field(config, "hidden_size");
	auto head_dim = field(config, "head_dim");
	for (const auto *got : {&layers, &heads, &kv_heads, &hidden, &head_dim})
		if (!*got)
			return got->error().in(path);
	auto elem_bytes = element_bytes(config);
	if (!elem_bytes)
		return elem_bytes.error().in(path);
	if (!*layers || !*heads || (!*head_dim && !*hidden))
		return error(EINVAL, path + ": num_hidden_layers, num_attention_heads and head_dim "
					    "or hidden_size "
					    "are needed");
	if (!*head_dim && **hidden % **heads)
		return error(EINVAL, path + ": hidden_size is no multiple of num_attention_heads, "
					    "so head_dim is needed");
	if (kv_heads->value_or(1) > **heads)
		return error(EINVAL, path + ": more num_key_value_heads than num_attention_heads");
	return KvShape{**layers, kv_heads->value_or(**heads), **heads,
		       head_dim->value_or(hidden->value_or(0) / **heads), *elem_bytes};
}

Result<KvShape> shape_of(const std::string &model)
{
	if (model == "llama-70b")
		return KvShape{};
	if (model == "llama-8b")
		return KvShape{32, 8, 32, 128, 2};
	return shape_of_config(model);
}

} // namespace

int cmd_plan(int argc, char **argv)
{
	PlanInputs in;
	std::string model = "llama-70b", measured;
	uint64_t kv_heads = 0, endpoints = 4;
	double elem_bytes = 0;
	bool as_json = false;
	Args args("plan",
		  "Computes sizes, times and cost of a deployment. Every line is a model: "
		  "arithmetic on the\n"
		  "inputs, and the defaults are a worked example with its authors' claims of "
		  "latency, power\n"
		  "and price. Only --measured brings figures of this host in.");
	args.text('m', "model", "MODEL", model,
		  "llama-70b, llama-8b, or a Hugging Face config.json");
	args.number(0, "kv-heads", "N", kv_heads, {1, 65536}, "KV heads instead of the model's");
	args.number(0, "elem-bytes", "B", elem_bytes, {0.25, 8},
		    "bytes of a KV element instead of the model's");
	args.number('c', "context", "TOKENS", in.context_tokens, {1, 1e9},
		    "tokens of a context (131072)");
	args.number('u', "users", "N", in.users, {1, 1e6}, "contexts at a time (8)");
	args.number(0, "weights", "GB", in.weights_GB, {0, 1e6}, "the model's weights (140)");
	args.number(0, "card", "GB", in.card_GB, {1, 1e6}, "memory of the accelerator (192)");
	args.number(0, "endpoints", "N", endpoints, {1, 64}, "CXL endpoints (4)");
	args.number(0, "link", "GBps", in.link_GBps, {0.1, 1e4}, "GB/s of an endpoint's link (64)");
	args.number(0, "prefill", "RATE", in.prefill_tokens_per_s, {1, 1e9},
		    "tokens/s that prefill computes (50000)");
	args.number(0, "flops", "FLOPS", in.flops_per_s, {1, 1e20}, "or the FLOP/s that it gets");
	args.number(0, "parameters", "N", in.parameters, {1, 1e15},
		    "parameters of the model, for --flops (70e9)");
	args.number(0, "fetch-bytes", "B", in.fetch_bytes_per_token, {1, 1e9},
		    "KV bytes a token to fetch (160000)");
	args.text(0, "measured", "FILE", measured,
		  "latencies and bandwidths that `cxl-kv bench -o` wrote, not the example's");
	args.number(0, "margin", "TIMES", in.margin, {1, 1000},
		    "fetch when so many times cheaper (3)");
	args.number(0, "years", "N", in.years, {0.1, 100}, "years of the cost (3)");
	args.number(0, "price", "USD", in.usd_per_kWh, {0, 100}, "of a kWh (0.12)");
	args.flag('j', "json", as_json, "print the rows as JSON");
	if (auto exit = args.parse(argc, argv))
		return *exit;

	auto shape = shape_of(model);
	if (!shape) {
		fmt::print(stderr, "cxl-kv plan: {}\n", shape.error().what);
		return kExitFailure;
	}
	in.shape = *shape;
	if (!measured.empty()) {
		auto figures = json_from_file(measured);
		auto used = figures ? use_measured(*figures, in) : figures.error();
		if (!used) {
			fmt::print(stderr, "cxl-kv plan: {}\n",
				   figures ? used.error().in(measured).what : used.error().what);
			return kExitFailure;
		}
	}
	in.endpoints = static_cast<double>(endpoints);
	if (kv_heads)
		in.shape.kv_heads = static_cast<uint32_t>(kv_heads);
	if (elem_bytes > 0)
		in.shape.elem_bytes = elem_bytes;
	std::vector<PlanRow> rows = plan_rows(in);
	if (as_json)
		fmt::print("{}\n", json_text(plan_json(rows), 2));
	else
		fmt::print("{}", plan_text(rows));
	return kExitOk;
}

} // namespace cxlkv
