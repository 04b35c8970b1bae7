#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Shell completion offers the program's commands and options, in bash and in zsh.
set -u
cd "$(dirname "$0")/../.." || exit 1
PATH=$PWD/build/bin:$PATH
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}

# What bash would offer for the words given, the last one unfinished.
# shellcheck disable=SC2034 # the completion function reads them
offered() {
	COMP_WORDS=("$@")
	COMP_CWORD=$(($# - 1))
	_cxl_kv
	echo "${COMPREPLY[*]}"
}

# shellcheck source=docs/completion/cxl-kv.bash
. docs/completion/cxl-kv.bash
commands=$(cxl-kv --help | awk '/^  [a-z]/ { print $1 }')
[ "$(wc -w <<<"$commands")" -ge 3 ]
report $? "the program names its commands"
for command in $commands; do
	[[ " $(offered cxl-kv '') " == *" $command "* ]]
	report $? "bash: offers $command"
	[[ " $(offered cxl-kv "$command" --h) " == *" --help "* ]]
	report $? "bash: offers the options of $command"
done
[ "$(offered cxl-kv sta)" = status ]
report $? "bash: finishes a word"
[ "$(offered cxl-kv top --del)" = --delay ]
report $? "bash: finishes an option"
[ "$(offered cxl-kv store '')" = "stat fsck dump" ]
report $? "bash: offers what store can do"
[ "$(offered cxl-kv drain --undo w)" = warm ]
report $? "bash: finishes a tier behind an option"
[ "$(offered cxl-kv store stat READM)" = README.md ]
report $? "bash: offers files behind what store shall do"
[ "$(offered cxl-kv plan -m ll)" = "llama-70b llama-8b" ]
report $? "bash: offers the models of plan"

if command -v zsh >/dev/null; then
	# compadd and _describe are stood in for by ones that print what they are given.
	ask_zsh() {
		zsh -f -c 'setopt extendedglob
			_describe() { print -l -- ${(P)2} }; compadd() { print -l -- $@ }; _files() { print files }
			words=("$@"); CURRENT=$#; PREFIX=$words[-1]
			complete_it() { source docs/completion/_cxl-kv }; complete_it' zsh "$@"
	}
	grep -q '^status:the daemon' <<<"$(ask_zsh cxl-kv '')"
	report $? "zsh: offers commands with what they do"
	grep -qxF -- --delay <<<"$(ask_zsh cxl-kv top --)"
	report $? "zsh: offers the options of top"
	[ "$(ask_zsh cxl-kv store '' | tr '\n' ' ')" = "-- stat fsck dump " ]
	report $? "zsh: offers what store can do"
	[ "$(ask_zsh cxl-kv store stat '')" = files ]
	report $? "zsh: offers files behind what store shall do"
else
	number=$((number + 1))
	echo "ok $number - zsh # SKIP no zsh here"
fi
echo "1..$number"
exit $status
