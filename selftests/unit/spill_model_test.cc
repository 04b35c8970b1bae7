/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The protocol of spilling loses no write and shows no wrong byte, in any order of
 * things: spill_model.h. Each safeguard is taken out once, and the model has to notice.
 */
#include "unit/spill_model.h"

#include <gtest/gtest.h>
#include <iostream>

using namespace cxlkv::model;

namespace {

std::string found_without(Without what)
{
	Model model(what);
	std::string found = model.explore();
	std::cout << "# " << model.nr_states() << " states" << (found.empty() ? "" : "; " + found)
		  << "\n";
	return found;
}

TEST(SpillModel, NothingIsLostAndNobodyWaitsForEver)
{
	Model model(Without::Nothing, 2);
	EXPECT_EQ(model.explore(), "");
	std::cout << "# " << model.nr_states()
		  << " states: what can be read is what was written last, no block is lost, no "
		     "leased one leaves, leases add up, no thread waits for ever\n";
	EXPECT_GT(model.nr_states(), 100000u) << "most of the model was not reached";
}

struct Case {
	Without what;
	const char *name, *found;
};
std::string name_of(const testing::TestParamInfo<Case> &one)
{
	return one.param.name;
}

class SpillModelWithout : public testing::TestWithParam<Case> {};

TEST_P(SpillModelWithout, IsFound)
{
	EXPECT_EQ(found_without(GetParam().what).rfind(GetParam().found, 0), 0u);
}

constexpr const char *kOld = "a read gives an old value", *kLost = "a block is lost",
		     *kLeft = "a leased block left memory", *kWaits = "a thread waits for ever";

INSTANTIATE_TEST_SUITE_P(
	Safeguard, SpillModelWithout,
	testing::Values(Case{Without::ProtectUntilPunched, "ProtectUntilPunched", kOld},
			Case{Without::ProtectBeforeCopy, "ProtectBeforeCopy", kOld},
			Case{Without::LeaseCheck, "LeaseCheck", kLeft},
			Case{Without::LeaseCheckAtProtect, "LeaseCheckAtProtect", kOld},
			Case{Without::WriteToClean, "WriteToClean", kOld},
			Case{Without::PageWins, "PageWins", kOld},
			Case{Without::EmptyWord, "EmptyWord", kLost},
			Case{Without::RecoveryWake, "RecoveryWake", kWaits},
			Case{Without::LeaseDuringPin, "LeaseDuringPin", kLost},
			Case{Without::LongLimit, "LongLimit", kLost},
			Case{Without::AgeReset, "AgeReset", kLeft},
			Case{Without::ExpiredFirst, "ExpiredFirst", kLeft},
			Case{Without::Commit, "Commit", kLost},
			Case{Without::Fetch, "Fetch", kWaits},
			Case{Without::AskAgain, "AskAgain", kWaits},
			Case{Without::WordFirst, "WordFirst", kLeft},
			Case{Without::LeaseCheckOfDrop, "LeaseCheckOfDrop", kLeft},
			Case{Without::LostWord, "LostWord", kOld}),
	name_of);

class SpillModelWithoutWhatSavesWork : public testing::TestWithParam<Case> {};

TEST_P(SpillModelWithoutWhatSavesWork, IsRight)
{
	EXPECT_EQ(found_without(GetParam().what), "");
}

INSTANTIATE_TEST_SUITE_P(Step, SpillModelWithoutWhatSavesWork,
			 testing::Values(Case{Without::Drain, "Drain", ""},
					 Case{Without::FinalUnprotect, "FinalUnprotect", ""},
					 Case{Without::AbortUnprotect, "AbortUnprotect", ""},
					 Case{Without::RecoveryUnprotect, "RecoveryUnprotect", ""}),
			 name_of);

} // namespace
