/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory-access samples of the PMU that carry addresses: AMD IBS, Intel PEBS. */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <vector>

namespace cxlkv {

/* One perf event for each CPU, enabled; or why there is none (in a VM usually ENOENT). */
Result<std::vector<Fd>> open_memory_samples();

} // namespace cxlkv
