/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options of one command: what they set, their help, and complaints that name
 * what is allowed. On top of getopt_long, so options and words may mix.
 *
 *	Args args("list", "what the command does");
 *	args.flag('j', "json", json, "print JSON");
 *	if (auto exit = args.parse(argc, argv))
 *		return *exit;
 */
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace cxlkv {

class Args {
public:
	/* Range of a number, both ends allowed. */
	struct Range {
		double min = 0, max = 1e18;
	};

	Args(std::string command, std::string about);

	/* letter 0 = none. What is set must outlive parse(). */
	void flag(char letter, const char *name, bool &to, const char *help);
	void text(char letter, const char *name, const char *value, std::string &to,
		  const char *help);
	void number(char letter, const char *name, const char *value, double &to, Range range,
		    const char *help);
	void number(char letter, const char *name, const char *value, uint64_t &to, Range range,
		    const char *help);
	/* Any check of one's own: takes the value, answers "" or what is allowed. */
	void check(char letter, const char *name, const char *value,
		   std::function<std::string(const std::string &)> take, const char *help);
	/* Words that are no options, in order; at least min and at most max of them. name: one
	 * for each; completion offers the choices of a first one that is like warm|cold. */
	void words(const char *name, std::vector<std::string> &to, size_t min,
		   size_t max = std::numeric_limits<size_t>::max());

	/* Sets everything; an exit status when the command ends here (help was shown, usage was
	 * wrong). */
	[[nodiscard]] std::optional<int> parse(int argc, char **argv);
	/* Says what is wrong with the usage; for what only the command can know. */
	int wrong(const std::string &why) const;

private:
	struct Option {
		char letter;
		std::string name;
		std::string value; /* empty: a flag */
		std::string help;
		std::function<std::string(const std::string &)> take;
	};

	void print_help() const;

	std::string command_, about_;
	std::vector<Option> options_;
	std::string words_name_;
	std::vector<std::string> *words_ = nullptr;
	size_t words_min_ = 0, words_max_ = 0;
};

} // namespace cxlkv
