/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/terminal.h"

#include <array>
#include <clocale>
#include <ncurses.h>
#include <term.h>
#include <unistd.h>

namespace cxlkv {

namespace {

/* Black to red to white, of the 256-colour table; pair number = level + 1. */
constexpr std::array<short, HeatMap::kNrLevels> heat_colours = {0,   17,  18,  54,  90,
								126, 162, 202, 214, 226};
constexpr short kAlarmPair = HeatMap::kNrLevels + 1;

bool set_up_colours()
{
	if (!has_colors() || start_color() == ERR || use_default_colors() == ERR)
		return false;
	init_pair(kAlarmPair, COLOR_RED, -1);
	if (COLORS < 256)
		return false; /* letters alone tell more than eight colours */
	for (size_t level = 0; level < heat_colours.size(); level++)
		init_pair(static_cast<short>(level + 1), level > 6 ? 16 : 252, heat_colours[level]);
	return true;
}

} // namespace

bool Terminal::usable()
{
	int why = 0;
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
	       setupterm(nullptr, STDOUT_FILENO, &why) == OK && cursor_address;
}

Terminal::Terminal()
{
	setlocale(LC_ALL, "");
	initscr();
	cbreak();
	noecho();
	curs_set(0);
	keypad(stdscr, TRUE);
	colours_ = set_up_colours();
}

Terminal::~Terminal()
{
	endwin();
}

TopRoom Terminal::room()
{
	int height = 0, width = 0;
	getmaxyx(stdscr, height, width);
	return {static_cast<size_t>(width), static_cast<size_t>(height > 1 ? height - 1 : 1)};
}

void Terminal::put(const TopPiece &piece) const
{
	attr_t attributes = A_NORMAL;

	if (piece.style == TopPiece::Bold)
		attributes = A_BOLD;
	else if (piece.style == TopPiece::Dim)
		attributes = A_DIM;
	else if (piece.style == TopPiece::Alarm)
		attributes = A_BOLD | (has_colors() ? COLOR_PAIR(kAlarmPair) : A_REVERSE);
	else if (piece.style == TopPiece::Heat && colours_)
		attributes = static_cast<attr_t>(COLOR_PAIR(static_cast<int>(piece.level) + 1));
	attron(attributes);
	addstr(piece.text.c_str());
	attroff(attributes);
}

void Terminal::show(const std::vector<TopLine> &frame, const std::string &keys)
{
	erase();
	for (size_t y = 0; y < frame.size(); y++) {
		move(static_cast<int>(y), 0);
		for (const TopPiece &piece : frame[y])
			put(piece);
	}
	move(LINES - 1, 0);
	put({TopPiece::Dim, keys.substr(0, static_cast<size_t>(COLS > 1 ? COLS - 1 : 0))});
	refresh();
}

int Terminal::key(int timeout_ms)
{
	timeout(timeout_ms);
	int got = getch();
	return got == ERR || got == KEY_RESIZE ? -1 : got;
}

} // namespace cxlkv
