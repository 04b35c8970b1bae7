/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Checks the decoder against model/reference.json, which another implementation computed. */
#pragma once

#include "engine/model.h"

#include <cstdint>
#include <string>

namespace cxlkv::engine {

constexpr double max_logit_error = 0.01, max_mass_error = 0.001;

struct ReferenceResult {
	uint32_t nr_cases = 0, nr_text_equal = 0;
	double logit_error = 0, mass_error = 0; /* largest absolute differences */

	[[nodiscard]] bool passed() const
	{
		return nr_cases && nr_text_equal == nr_cases && logit_error <= max_logit_error &&
		       mass_error <= max_mass_error;
	}
};

/* KV in plain memory. Errors are unusable files; a wrong result is not an error. */
Result<ReferenceResult> check_reference(const Model &model, KvType type,
					const std::string &reference_path,
					const std::string &text_path);

} // namespace cxlkv::engine
