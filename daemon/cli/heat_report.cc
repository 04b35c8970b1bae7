/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/heat_report.h"

#include "cli/units.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace cxlkv {

namespace {

constexpr size_t kNoFold = 1 << 20;

/* values[y * width + x], each 0 to 1 of the highest. */
struct Grid {
	size_t width = 0, height = 0;
	std::vector<double> values;

	Grid(size_t w, size_t h) : width(w), height(h), values(w * h) {}
	double &at(size_t x, size_t y) { return values[y * width + x]; }
	[[nodiscard]] double at(size_t x, size_t y) const { return values[y * width + x]; }
};

std::vector<HeatMap> maps_of(const HeatReport &report)
{
	std::vector<HeatMap> maps;
	for (const HeatSample &sample : report.samples)
		maps.emplace_back(sample.heads, report.of, kNoFold, kNoFold);
	return maps;
}

/* What the darkest colour stands for, the same in all pictures. */
double top_of(const std::vector<HeatMap> &maps)
{
	double top = 0;
	for (const HeatMap &map : maps)
		top = std::max(top, map.empty() ? 0 : map.top());
	return top;
}

/* Means over all heads of a layer, and over neighbours where there are more than fit. */
Grid over_time(const std::vector<HeatMap> &maps, double top, size_t max_width, size_t max_height)
{
	const size_t layers = maps[0].width();
	const size_t per_x = (maps.size() + max_width - 1) / max_width;
	const size_t per_y = (layers + max_height - 1) / max_height;
	Grid grid((maps.size() + per_x - 1) / per_x, (layers + per_y - 1) / per_y);
	std::vector<double> counts(grid.values.size());

	for (size_t i = 0; i < maps.size(); i++)
		for (size_t layer = 0; layer < std::min(layers, maps[i].width()); layer++)
			for (size_t head = 0; head < maps[i].height(); head++) {
				size_t cell = layer / per_y * grid.width + i / per_x;
				grid.values[cell] += maps[i].value(layer, head);
				counts[cell]++;
			}
	for (size_t cell = 0; cell < counts.size(); cell++)
		grid.values[cell] /= std::max(counts[cell], 1.0) * (top > 0 ? top : 1);
	return grid;
}

/* "2.5 s": tenths where whole seconds would look alike. */
std::string moment(const HeatReport &report, double at_s)
{
	return fmt::format("{:.{}f} s", at_s, report.samples.back().at_s < 60 ? 1 : 0);
}

std::string scale_text(const HeatReport &report, double top)
{
	return report.of == HeatOf::Score ? fmt::format("{:.3g}", top) : "100 %";
}

/* ---- SVG ---- */

constexpr double kLeft = 60, kGap = 46;

/* Dark blue to yellow, of even steps in brightness. */
std::string colour(double share)
{
	static constexpr std::array<std::array<double, 3>, 5> stops = {
		{{13, 8, 66}, {84, 39, 143}, {184, 50, 112}, {242, 125, 56}, {252, 236, 130}}};
	double at = std::clamp(share, 0.0, 1.0) * (stops.size() - 1);
	size_t i = std::min(static_cast<size_t>(at), stops.size() - 2);
	double part = at - static_cast<double>(i);
	std::string out = "#";
	for (size_t c = 0; c < 3; c++)
		out += fmt::format("{:02x}", static_cast<unsigned>(stops[i][c] * (1 - part) +
								   stops[i + 1][c] * part));
	return out;
}

std::string escaped(const std::string &text)
{
	std::string out;
	for (char c : printable(text))
		out += c == '&'   ? "&amp;"
		       : c == '<' ? "&lt;"
		       : c == '>' ? "&gt;"
				  : std::string(1, c);
	return out;
}

class Page {
public:
	void text(double x, double y, const char *anchor, const std::string &words, int size = 12)
	{
		body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" "
				     "font-size=\"{}\">{}</text>\n",
				     x, y, anchor, size, escaped(words));
		grow(x, y);
	}
	void grid(double x, double y, double cell_w, double cell_h, const Grid &grid)
	{
		for (size_t row = 0; row < grid.height; row++)
			for (size_t column = 0; column < grid.width; column++)
				rect(x + cell_w * static_cast<double>(column),
				     y + cell_h * static_cast<double>(row), cell_w, cell_h,
				     colour(grid.at(column, row)));
	}
	void rect(double x, double y, double w, double h, const std::string &fill)
	{
		/* A hair of overlap hides the seams that renderers leave. */
		body_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
				     "height=\"{:.2f}\" fill=\"{}\"/>\n",
				     x, y, w + 0.3, h + 0.3, fill);
		grow(x + w, y + h);
	}
	[[nodiscard]] std::string take() const
	{
		return fmt::format(
			"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} "
			"{1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
			"font-family=\"sans-serif\">\n"
			"<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
			right_ + 30, bottom_ + 30, body_);
	}

private:
	void grow(double x, double y)
	{
		right_ = std::max(right_, x);
		bottom_ = std::max(bottom_, y);
	}
	std::string body_;
	double right_ = 0, bottom_ = 0;
};

void legend(Page &page, double x, double y, const HeatReport &report, double top)
{
	for (int i = 0; i < 40; i++)
		page.rect(x + i * 4, y, 4, 10, colour(i / 39.0));
	page.text(x, y + 24, "start", "0", 11);
	page.text(x + 160, y + 24, "end", scale_text(report, top), 11);
}

/* Time across, layers down. Answers where it ends. */
double time_panel(Page &page, double y, const HeatReport &report, const Grid &grid, size_t layers)
{
	const double width = 700,
		     cell_h = std::clamp(240.0 / static_cast<double>(grid.height), 3.0, 16.0);
	const double height = cell_h * static_cast<double>(grid.height);

	page.grid(kLeft, y, width / static_cast<double>(grid.width), cell_h, grid);
	page.text(kLeft - 8, y + 10, "end", "layer 0", 11);
	if (layers > 1)
		page.text(kLeft - 8, y + height, "end", std::to_string(layers - 1), 11);
	page.text(kLeft, y + height + 16, "start", moment(report, 0), 11);
	page.text(kLeft + width, y + height + 16, "end", moment(report, report.samples.back().at_s),
		  11);
	return y + height + kGap;
}

/* Heads across, layers down, one picture for each of up to twelve moments. */
void head_panels(Page &page, double top_y, const HeatReport &report,
		 const std::vector<HeatMap> &maps, double top)
{
	const size_t nr = std::min<size_t>(maps.size(), 12), in_a_row = 6;
	const double width = 105, step = 119;
	const auto heads = static_cast<double>(maps[0].height()),
		   layers = static_cast<double>(maps[0].width());
	const double cell_h = std::clamp(160.0 / layers, 1.5, 16.0), height = cell_h * layers;

	for (size_t i = 0; i < nr; i++) {
		size_t sample = nr > 1 ? i * (maps.size() - 1) / (nr - 1) : 0;
		const HeatMap &map = maps[sample];
		double x = kLeft + step * static_cast<double>(i % in_a_row);
		double y = top_y + (height + 34) * static_cast<double>(i / in_a_row);
		Grid grid(map.height(), map.width());
		for (size_t layer = 0; layer < map.width(); layer++)
			for (size_t head = 0; head < map.height(); head++)
				grid.at(head, layer) = map.value(layer, head) / (top > 0 ? top : 1);
		page.grid(x, y, width / heads, cell_h, grid);
		page.text(x, y + height + 14, "start", moment(report, report.samples[sample].at_s),
			  11);
		if (i % in_a_row == 0)
			page.text(x - 8, y + 10, "end", "layer 0", 11);
	}
}

} // namespace

std::string heat_text(const HeatReport &report)
{
	std::vector<HeatMap> maps = maps_of(report);
	if (maps[0].empty())
		return "no heads to show\n";
	const double top = top_of(maps);
	const size_t layers = maps[0].width();
	Grid grid = over_time(maps, top, 68, 40);
	const size_t per_row = (layers + grid.height - 1) / grid.height;
	std::string out =
		fmt::format("{}: {} by layer over {:.0f} s; \"{}\" = 0 to {}\n",
			    printable(report.title), heat_title(report.of),
			    report.samples.back().at_s, " .:-=+*#%@", scale_text(report, top));

	for (size_t row = 0; row < grid.height; row++) {
		out += right(std::to_string(row * per_row), 6) + " |";
		for (size_t x = 0; x < grid.width; x++) {
			double share = grid.at(x, row);
			out += HeatMap::letter(share > 0 ? 1 + static_cast<size_t>(share * 8.999)
							 : 0);
		}
		out += "|\n";
	}
	HeatMap last(report.samples.back().heads, report.of, 68, 32);
	out += fmt::format("at the end, by layer ({} a column) and KV head ({} a row); the darkest "
			   "is {}\n",
			   last.layers_per_cell(), last.heads_per_cell(),
			   scale_text(report, last.top()));
	for (size_t y = 0; y < last.height(); y++) {
		out += right(std::to_string(y * last.heads_per_cell()), 6) + " |";
		for (size_t x = 0; x < last.width(); x++)
			out += HeatMap::letter(last.level(x, y));
		out += "|\n";
	}
	return out;
}

std::string heat_svg(const HeatReport &report)
{
	Page page;
	std::vector<HeatMap> maps = maps_of(report);
	if (maps[0].empty()) {
		page.text(kLeft, 30, "start", "no heads to show");
		return page.take();
	}
	const double top = top_of(maps);
	page.text(kLeft, 28, "start", report.title, 15);
	page.text(kLeft, 48, "start",
		  fmt::format("{}, by layer over time (mean of its {} KV heads)",
			      heat_title(report.of), maps[0].height()));
	legend(page, kLeft + 540, 16, report, top);
	double y = time_panel(page, 60, report, over_time(maps, top, 200, 80), maps[0].width());
	page.text(kLeft, y - 8, "start", "by layer (down) and KV head (across)");
	head_panels(page, y, report, maps, top);
	return page.take();
}

} // namespace cxlkv
