/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/args.h"

#include "cli/commands.h"
#include "cli/units.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <getopt.h>

namespace cxlkv {

namespace {

/* Value of option i in getopt_long's table; above every letter. */
constexpr int kFirst = 1000;

std::string take_number(const std::string &text, double &to, Args::Range range, bool whole)
{
	char *end = nullptr;
	errno = 0;
	double value = strtod(text.c_str(), &end);

	if (text.empty() || *end || errno || !(value >= range.min && value <= range.max) ||
	    (whole && value != std::floor(value)))
		return fmt::format("a {}number from {:.15g} to {:.15g}", whole ? "whole " : "",
				   range.min, range.max);
	to = value;
	return "";
}

} // namespace

Args::Args(std::string command, std::string about)
    : command_(std::move(command)), about_(std::move(about))
{
}

void Args::flag(char letter, const char *name, bool &to, const char *help)
{
	options_.push_back({letter, name, "", help, [&to](const std::string &) {
				    to = true;
				    return std::string();
			    }});
}

void Args::text(char letter, const char *name, const char *value, std::string &to, const char *help)
{
	check(
		letter, name, value,
		[&to](const std::string &text) {
			to = text;
			return std::string(text.empty() ? "a value that is not empty" : "");
		},
		help);
}

void Args::number(char letter, const char *name, const char *value, double &to, Range range,
		  const char *help)
{
	check(
		letter, name, value,
		[&to, range](const std::string &text) {
			return take_number(text, to, range, false);
		},
		help);
}

void Args::number(char letter, const char *name, const char *value, uint64_t &to, Range range,
		  const char *help)
{
	check(
		letter, name, value,
		[&to, range](const std::string &text) {
			double number = 0;
			std::string allowed = take_number(text, number, range, true);
			if (allowed.empty())
				to = static_cast<uint64_t>(number);
			return allowed;
		},
		help);
}

void Args::check(char letter, const char *name, const char *value,
		 std::function<std::string(const std::string &)> take, const char *help)
{
	options_.push_back({letter, name, value, help, std::move(take)});
}

void Args::words(const char *name, std::vector<std::string> &to, size_t min, size_t max)
{
	words_name_ = name;
	words_ = &to;
	words_min_ = min;
	words_max_ = max;
}

std::optional<int> Args::parse(int argc, char **argv)
{
	std::string letters = ":h";
	std::vector<option> table;

	for (size_t i = 0; i < options_.size(); i++) {
		const Option &o = options_[i];
		bool has_value = !o.value.empty();
		if (o.letter)
			letters += std::string(1, o.letter) + (has_value ? ":" : "");
		table.push_back({o.name.c_str(), has_value ? required_argument : no_argument,
				 nullptr, kFirst + static_cast<int>(i)});
	}
	table.push_back({"help", no_argument, nullptr, 'h'});
	table.push_back({});

	optind = 0; /* start anew: main has looked at the words before */
	opterr = 0;
	for (int got;
	     (got = getopt_long(argc, argv, letters.c_str(), table.data(), nullptr)) != -1;) {
		const char *word = argv[optind - 1];
		if (got == 'h') {
			print_help();
			return kExitOk;
		}
		if (got == ':')
			return wrong(fmt::format("{} needs a value", word));
		if (got == '?')
			return wrong(
				optopt && optopt < kFirst
					? fmt::format("no option -{}", static_cast<char>(optopt))
					: fmt::format("no option {}", word));
		for (size_t i = 0; i < options_.size(); i++) {
			const Option &o = options_[i];
			if (got != kFirst + static_cast<int>(i) && (!o.letter || got != o.letter))
				continue;
			std::string value = optarg ? optarg : "";
			std::string allowed = o.take(value);
			if (!allowed.empty())
				return wrong(fmt::format("--{} {}: it takes {}", o.name, value,
							 allowed));
			break;
		}
	}
	size_t nr_words = static_cast<size_t>(argc - optind);
	if (nr_words < words_min_) {
		std::string name = words_name_;
		for (size_t i = 0; i < nr_words; i++)
			name.erase(0, name.find(' ') + 1);
		return wrong(fmt::format("{} is missing", name));
	}
	if (nr_words > words_max_)
		return wrong(
			fmt::format("what is {}?", argv[optind + static_cast<int>(words_max_)]));
	if (words_)
		words_->assign(argv + optind, argv + argc);
	return {};
}

int Args::wrong(const std::string &why) const
{
	fmt::print(stderr, "cxl-kv {}: {}\n`cxl-kv {} --help` lists the options\n", command_, why,
		   command_);
	return kExitUsage;
}

void Args::print_help() const
{
	constexpr size_t width = 80, help_at = 27;

	fmt::print("usage: cxl-kv {} [OPTION]...{}{}\n\n{}\n", command_,
		   words_name_.empty() ? "" : " ", words_name_, wrap(about_, width, 0));
	for (const Option &o : options_) {
		std::string name = fmt::format("  {:<3} --{}{}{}",
					       o.letter ? fmt::format("-{},", o.letter) : "",
					       o.name, o.value.empty() ? "" : " ", o.value);
		/* A long one stands alone. */
		name = name.size() < help_at ? left(name, help_at)
					     : name + "\n" + std::string(help_at, ' ');
		fmt::print("{}{}", name, wrap(o.help, width - help_at, help_at));
	}
	fmt::print("{}this text\n", left("  -h, --help", help_at));
}

} // namespace cxlkv
