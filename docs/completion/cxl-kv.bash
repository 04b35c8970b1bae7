# SPDX-License-Identifier: LGPL-2.1-or-later
# bash completion of cxl-kv. Commands and options come from its own help, so
# that they are never older than the program.

_cxl_kv()
{
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]} choices

	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "--help --version $("$program" --help 2>/dev/null |
			awk '/^  [a-z]/ { print $1 }')" -- "$word")
	elif [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" "$command" --help 2>/dev/null |
			grep -o -- '--[a-z][a-z-]*')" -- "$word")
	elif [[ $before == --arena || $before == -a ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" list 2>/dev/null |
			awk 'NR > 1 { print $1 }')" -- "$word")
	elif [[ $command == plan && ($before == --model || $before == -m) ]]; then
		mapfile -t COMPREPLY < <(compgen -f -W "$("$program" plan --help 2>/dev/null |
			grep -o 'llama-[0-9]*b')" -- "$word")
	elif choices=$("$program" "$command" --help 2>/dev/null |
		sed -n '1s/.*\.\.\. \([a-z]*|[a-z|]*\).*/\1/p') &&
		[[ -n $choices && ! " ${COMP_WORDS[*]:2:COMP_CWORD-2} " =~ \ ($choices)\  ]]; then
		mapfile -t COMPREPLY < <(compgen -W "${choices//|/ }" -- "$word")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}
complete -o filenames -F _cxl_kv cxl-kv
