/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* main() of every GoogleTest program: prints TAP instead of GoogleTest's own lines. */
#include <cstdio>
#include <gtest/gtest.h>
#include <string>

namespace {

class TapPrinter : public testing::EmptyTestEventListener {
	void OnTestProgramStart(const testing::UnitTest &unit) override
	{
		printf("TAP version 13\n1..%d\n", unit.test_to_run_count());
	}

	void OnTestPartResult(const testing::TestPartResult &result) override
	{
		if (result.skipped()) {
			skip_ = result.message() ? result.message() : "";
			return;
		}
		if (result.passed())
			return;
		std::string text = result.message();
		for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
			text.replace(at, 1, "\n# ");
		printf("# %s:%d: %s\n", result.file_name() ? result.file_name() : "?",
		       result.line_number(), text.c_str());
	}

	void OnTestEnd(const testing::TestInfo &info) override
	{
		const testing::TestResult &result = *info.result();

		printf("%s %d - %s.%s%s%s\n", result.Failed() ? "not ok" : "ok", ++number_,
		       info.test_suite_name(), info.name(), result.Skipped() ? " # SKIP " : "",
		       result.Skipped() ? skip_.c_str() : "");
		fflush(stdout);
	}

	std::string skip_;
	int number_ = 0;
};

} // namespace

int main(int argc, char **argv)
{
	testing::InitGoogleTest(&argc, argv);
	auto &listeners = testing::UnitTest::GetInstance()->listeners();
	delete listeners.Release(listeners.default_result_printer());
	listeners.Append(new TapPrinter);
	return RUN_ALL_TESTS();
}
