/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A plot of hit against capacity, both axes labelled, capacity on a log scale. */
#include "sim/result.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cxlkv::sim {

namespace {

constexpr double width = 900, height = 560, left = 60, right = 190, top = 40, bottom = 50;
const char *const colours[] = {"#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e",
			       "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f",
			       "#393b79", "#637939", "#8c6d31", "#843c39"};

std::string escaped(const std::string &text)
{
	std::string out;
	for (char c : text)
		out += c == '&'   ? "&amp;"
		       : c == '<' ? "&lt;"
		       : c == '>' ? "&gt;"
				  : std::string(1, c);
	return out;
}

class Plot {
public:
	explicit Plot(const SimResult &result) : result_(result)
	{
		auto [low, high] =
			std::minmax_element(result.capacities.begin(), result.capacities.end());
		low_ = std::log(*low);
		span_ = std::max(std::log(*high) - low_, 1e-9);
		for (const Row &row : result.rows)
			for (const Cell &cell : row.cells)
				highest_ = std::max(highest_, value(cell));
		highest_ = std::ceil(highest_ / 10) * 10;
	}

	std::string draw()
	{
		text_ = fmt::format(
			"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
			"font-family=\"sans-serif\" font-size=\"12\">\n"
			"<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
			width, height);
		label(left, 20, "start", escaped(result_.trace));
		axes();
		for (size_t i = 0; i < result_.rows.size(); i++)
			line(result_.rows[i], i);
		return text_ + "</svg>\n";
	}

private:
	[[nodiscard]] double value(const Cell &cell) const
	{
		return result_.attention ? cell.hit : cell.useful;
	}
	[[nodiscard]] double x(double capacity) const
	{
		return left + (std::log(capacity) - low_) / span_ * (width - left - right);
	}
	[[nodiscard]] double y(double percent) const
	{
		return height - bottom - percent / highest_ * (height - top - bottom);
	}

	void label(double at_x, double at_y, const char *anchor, const std::string &words)
	{
		text_ += fmt::format(
			"<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x,
			at_y, anchor, words);
	}

	void axes()
	{
		for (double percent = 0; percent <= highest_; percent += highest_ / 5) {
			text_ += fmt::format("<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/>\n", left,
					     y(percent), width - right);
			label(left - 8, y(percent) + 4, "end", fmt::format("{:g} %", percent));
		}
		for (double capacity : result_.capacities)
			label(x(capacity), height - bottom + 18, "middle",
			      fmt::format("{:g} %", capacity));
		label((left + width - right) / 2, height - 10, "middle",
		      result_.attention ? "budget, share of the sequence (log); block hit"
					: "capacity, share of distinct blocks (log); prefix hit");
	}

	void line(const Row &row, size_t number)
	{
		const char *colour = colours[number % std::size(colours)];
		std::string points;
		for (size_t i = 0; i < row.cells.size(); i++)
			points += fmt::format("{:.1f},{:.1f} ", x(result_.capacities[i]),
					      y(value(row.cells[i])));
		text_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" "
				     "stroke-width=\"{}\"{}/>\n",
				     points, colour, row.policy == "adaptive" ? 3 : 1.5,
				     row.online ? "" : " stroke-dasharray=\"6 3\"");
		double at_y = top + 18.0 * static_cast<double>(number);
		text_ += fmt::format(
			"<path d=\"M{} {:.1f}h20\" stroke=\"{}\" stroke-width=\"3\"/>\n",
			width - right + 14, at_y, colour);
		label(width - right + 40, at_y + 4, "start", escaped(row.policy));
	}

	const SimResult &result_;
	double low_, span_, highest_ = 10;
	std::string text_;
};

} // namespace

std::string to_svg(const SimResult &result)
{
	return Plot(result).draw();
}

} // namespace cxlkv::sim
