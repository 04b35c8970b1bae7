/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * kv-engine: a small real decoder that serves conversations on KV memory of
 * either kind. Exit codes: 0 done, 1 something differs from what it must be,
 * 2 bad usage or input, 3 the KV memory failed.
 */
#include "engine/attention.h"
#include "engine/perplexity.h"
#include "engine/reference.h"
#include "engine/run.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <iostream>

namespace {

using namespace cxlkv;
using namespace cxlkv::engine;

enum Exit { exit_ok = 0, exit_differs = 1, exit_usage = 2, exit_memory = 3 };

struct Arguments {
	std::string model_dir = "selftests/engine/model";
	RunOptions run;
	std::string output;
	bool json = false;
	std::string file_a, file_b;
	AttentionOptions attention;
	PerplexityOptions perplexity;
	std::vector<std::string> formats{"raw", "fp8", "int8", "int4"};

	[[nodiscard]] std::string model_file(const char *name) const
	{
		return model_dir + "/" + name;
	}
};

int fail(const Error &e, Exit code)
{
	fmt::print(stderr, "kv-engine: {}\n", e.what);
	return code;
}

int run_reference(const Arguments &args)
{
	Result<Model> model = Model::load(args.model_file("tiny-llama.bin"));
	if (!model)
		return fail(model.error(), exit_usage);
	Result<ReferenceResult> r =
		check_reference(*model, args.run.kv_type, args.model_file("reference.json"),
				args.model_file("heldout.txt"));
	if (!r)
		return fail(r.error(), exit_usage);
	fmt::print("{} cases on {}: largest logit difference {:.6f} (at most {}), attention mass "
		   "{:.6f} (at most "
		   "{}), text equal {}/{}: {}\n",
		   r->nr_cases, kernel_target(), r->logit_error, max_logit_error, r->mass_error,
		   max_mass_error, r->nr_text_equal, r->nr_cases,
		   r->passed() ? "passed" : "FAILED");
	return r->passed() ? exit_ok : exit_differs;
}

int run_workload(const Arguments &args)
{
	Result<Model> model = Model::load(args.model_file("tiny-llama.bin"));
	if (!model)
		return fail(model.error(), exit_usage);
	Result<Text> text = read_text(args.model_file("heldout.txt"));
	if (!text)
		return fail(text.error(), exit_usage);
	Result<RunResult> result = run(args.run, *model, *text);
	if (!result)
		return fail(result.error(),
			    result.error().code == EINVAL ? exit_usage : exit_memory);
	if (!args.output.empty())
		if (Result<> r = write_transcript(args.output, result->records); !r)
			return fail(r.error(), exit_usage);
	fmt::print("{}\n", args.json ? summary_json(*result) : summary_text(*result));
	return exit_ok;
}

int run_attention(const Arguments &args)
{
	Result<Model> model = Model::load(args.model_file("tiny-llama.bin"));
	if (!model)
		return fail(model.error(), exit_usage);
	Result<Text> text = read_text(args.model_file("heldout.txt"));
	if (!text)
		return fail(text.error(), exit_usage);
	if (Result<> r = record_attention(args.attention, *model, *text, args.output); !r)
		return fail(r.error(), exit_usage);
	return exit_ok;
}

const std::map<std::string, std::optional<codec::Format>> cold_formats{
	{"raw", {}},
	{"fp8", codec::Format::Fp8},
	{"int8", codec::Format::Int8},
	{"int4", codec::Format::Int4}};

/* A line a format; the change is against raw. */
int run_perplexity(const Arguments &args)
{
	Result<Model> model = Model::load(args.model_file("tiny-llama.bin"));
	if (!model)
		return fail(model.error(), exit_usage);
	Result<Text> text = read_text(args.model_file("heldout.txt"));
	if (!text)
		return fail(text.error(), exit_usage);
	PerplexityOptions options = args.perplexity;
	Result<PerplexityResult> raw = measure_perplexity(options, *model, *text);
	if (!raw)
		return fail(raw.error(), exit_usage);
	fmt::print("{} bytes in contexts of {}, blocks of {} tokens, FP16, {}\n", raw->nr_predicted,
		   options.context, options.tokens_per_block, codec::simd_target());
	fmt::print("format  bits/byte  perplexity   change    NMSE  worst head  cosine\n");
	for (const std::string &name : args.formats) {
		options.format = cold_formats.at(name);
		Result<PerplexityResult> r =
			options.format ? measure_perplexity(options, *model, *text) : raw;
		if (!r)
			return fail(r.error(), exit_usage);
		fmt::print("{:<6} {:>10.5f} {:>11.5f} {:>+7.3f}% {:>7.1e} {:>11.1e} {:.6f}\n", name,
			   r->bits_per_byte(), r->perplexity(),
			   100 * (r->perplexity() / raw->perplexity() - 1), r->error().nmse(),
			   r->worst_nmse(), r->error().cosine());
	}
	return exit_ok;
}

int run_compare(const Arguments &args)
{
	Result<std::vector<Record>> a = read_transcript(args.file_a),
				    b = read_transcript(args.file_b);
	if (!a)
		return fail(a.error(), exit_usage);
	if (!b)
		return fail(b.error(), exit_usage);
	Comparison c = compare(*a, *b);
	for (const std::string &d : c.differences)
		fmt::print("{}\n", d);
	fmt::print("KV cache identical: {}/{}\ntokens identical: {}/{}\n", c.nr_kv_identical, c.nr,
		   c.nr_tokens_identical, c.nr);
	return c.identical() ? exit_ok : exit_differs;
}

void add_kv_type(CLI::App *app, Arguments *args)
{
	/* Not of KvType, a character to CLI11, which would print it as one. */
	std::map<std::string, int> types{{"f16", int(KvType::F16)}, {"f32", int(KvType::F32)}};
	app->add_option("--kv-type", args->run.kv_type, "elements of the KV cache: f16 or f32")
		->transform(CLI::CheckedTransformer(types));
}

void add_run_options(CLI::App *app, Arguments *args)
{
	RunOptions &r = args->run;
	std::map<std::string, bool> kinds{{"plain", false}, {"arena", true}};

	app->add_option("--memory", r.arena, "where the KV cache lies: plain or arena (libcxl_kv)")
		->transform(CLI::CheckedTransformer(kinds));
	app->add_option("--socket", r.arena_settings.socket, "control socket of cxl-kvd");
	std::map<std::string, cxl_kv_cold_format> formats{{"default", CXL_KV_COLD_DEFAULT},
							  {"raw", CXL_KV_COLD_RAW},
							  {"fp8", CXL_KV_COLD_FP8},
							  {"int8", CXL_KV_COLD_INT8},
							  {"int4", CXL_KV_COLD_INT4}};
	app->add_option("--cold-format", r.arena_settings.cold_format,
			"how blocks are stored outside memory: default (the daemon's), raw, fp8, "
			"int8, int4")
		->transform(CLI::CheckedTransformer(formats));
	app->add_option("--deadline-ms", r.arena_settings.deadline_ms, "longest wait for room");
	app->add_option("--wake-deadline-ms", r.arena_settings.wake_deadline_ms,
			"what a conversation's KV is waited for before it is computed again")
		->capture_default_str();
	app->add_option("--conversations", r.workload.conversations)->capture_default_str();
	app->add_option("--rounds", r.workload.rounds, "turns of each conversation")
		->capture_default_str();
	app->add_option("--context", r.workload.context, "tokens a conversation may reach")
		->capture_default_str();
	app->add_option("--reply", r.workload.reply, "tokens decoded in a turn")
		->capture_default_str();
	app->add_option("--seed", r.workload.seed)->capture_default_str();
	app->add_option("--tokens-per-block", r.tokens_per_block)->capture_default_str();
	app->add_option("--score-every", r.score_every,
			"steps from one report of attention to the next")
		->capture_default_str();
	app->add_option("--prompts", r.workload.prompts,
			"texts that conversations share the beginning of")
		->capture_default_str();
	app->add_option("--prompt-tokens", r.workload.prompt_tokens, "of each")
		->capture_default_str();
	auto *gaps = app->add_option(
		"--gaps", r.gaps_file,
		"turns come after gaps like those in this file (selftests/engine/gaps.txt)");
	app->add_option("--replay", r.replay_file,
			"turns come as in this trace (agentic.txt, or .xz), one session a "
			"conversation")
		->excludes(gaps);
	app->add_option("--gap-scale", r.gap_scale, "of a real gap")->capture_default_str();
	app->add_flag("--decide", r.decide, "compute again what comes back more slowly");
	app->add_flag("--reuse", r.reuse,
		      "share what conversations that begin alike have computed");
	app->add_option("--output", args->output, "file for tokens and KV hashes, see compare");
	app->add_flag("-j,--json", args->json, "summary as one line of JSON");
	add_kv_type(app, args);
}

int command(int argc, char **argv)
{
	Arguments args;
	CLI::App app{"A small llama-family decoder on tiered KV memory.", "kv-engine"};
	app.require_subcommand(1);
	app.add_option("--model", args.model_dir,
		       "folder with tiny-llama.bin, heldout.txt, reference.json")
		->capture_default_str();

	CLI::App *reference =
		app.add_subcommand("reference", "check the decoder against reference.json");
	args.run.kv_type = KvType::F16;
	add_kv_type(reference, &args);
	CLI::App *workload = app.add_subcommand("run", "serve conversations in turn");
	add_run_options(workload, &args);
	CLI::App *comparison = app.add_subcommand("compare", "compare the outputs of two runs");
	comparison->add_option("a", args.file_a)->required();
	comparison->add_option("b", args.file_b)->required();
	CLI::App *attention = app.add_subcommand("attention", "record the attention of a text");
	attention->add_option("file", args.output, "trace to write (.att)")->required();
	attention->add_option("--offset", args.attention.offset, "where in heldout.txt it begins")
		->capture_default_str();
	attention->add_option("--tokens", args.attention.tokens)->capture_default_str();
	attention->add_option("--tokens-per-block", args.attention.tokens_per_block)
		->capture_default_str();

	CLI::App *perplexity = app.add_subcommand(
		"perplexity", "what lossy formats of the cold tier do to the model");
	perplexity->add_option("--format", args.formats, "raw, fp8, int8, int4; all by default")
		->check(CLI::IsMember({"raw", "fp8", "int8", "int4"}));
	perplexity->add_option("--tokens", args.perplexity.tokens)->capture_default_str();
	perplexity->add_option("--context", args.perplexity.context)->capture_default_str();
	perplexity->add_option("--tokens-per-block", args.perplexity.tokens_per_block)
		->capture_default_str();

	try {
		app.parse(argc, argv);
	} catch (const CLI::ParseError &e) {
		return app.exit(e) ? exit_usage : exit_ok;
	}
	if (reference->parsed())
		return run_reference(args);
	if (perplexity->parsed())
		return run_perplexity(args);
	if (attention->parsed())
		return run_attention(args);
	return workload->parsed() ? run_workload(args) : run_compare(args);
}

} // namespace

int main(int argc, char **argv)
{
	try {
		return command(argc, argv);
	} catch (const std::exception &e) {
		fmt::print(stderr, "kv-engine: {}\n", e.what());
		return exit_memory;
	}
}
