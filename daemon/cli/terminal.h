/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The whole terminal while `top` runs, through ncurses; given back by the destructor. */
#pragma once

#include "cli/top_view.h"

namespace cxlkv {

class Terminal {
public:
	/* False where stdin or stdout is no terminal, or none that ncurses can drive. */
	static bool usable();

	Terminal();
	~Terminal();
	Terminal(const Terminal &) = delete;
	Terminal &operator=(const Terminal &) = delete;

	[[nodiscard]] static TopRoom room();
	/* The last line of the screen holds the keys. */
	void show(const std::vector<TopLine> &frame, const std::string &keys);
	/* A key, or -1 after timeout_ms or when the window changed its size. */
	static int key(int timeout_ms);

private:
	void put(const TopPiece &piece) const;

	bool colours_ = false;
};

} // namespace cxlkv
