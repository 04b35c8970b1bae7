/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/model.h"

#include <cmath>
#include <numeric>

namespace cxlkv {

double rounded(double value, int decimals)
{
	double scale = std::pow(10, decimals);
	return std::round(value * scale) / scale;
}

double rounded_GB(double bytes)
{
	double GB = bytes / 1e9;
	return rounded(GB, GB >= 20 ? 0 : 1);
}

double transfer_ms(double bytes, double GBps)
{
	return bytes / (GBps * 1e9) * 1e3;
}

double sum(const std::vector<double> &parts)
{
	return std::accumulate(parts.begin(), parts.end(), 0.0);
}

double percent_less(double before, double now)
{
	return (before - now) / before * 100;
}

} // namespace cxlkv
