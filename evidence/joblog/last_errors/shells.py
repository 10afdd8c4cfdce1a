"""What shells report of the scripts that they run."""

from __future__ import annotations

SHELL = (
    r"(?:\S{1,300}: line \d{1,6}(?=: .*(?:\b(?i:not|errors?|unexpected|unbound|cannot|invalid|bad|ambiguous|no such|denied|out of range|too|division|required|missing|unterminated|readonly|failed|EOF)\b|: ))|(?:(?:\S{0,200}/)?(?:(?:ba|da|k|z)sh|sh(?!:[A-Za-z_]))|(?:\S{0,200}/)?[\w.+-]{0,80}(?:\.sh|\.[kzc]sh|\.bash|_script|\.(?:slurm|sbatch|job|pbs|cmd)))(?::(?: ?|\w{1,20}:)\d{1,6}|\[\d{1,6}\])): "
    r"(?!\[{1,2}: |test: |ulimit: |let: |kill: |warning: |\s{0,4}\d{1,10}\s)\S.{0,400}$"
)
"""What a shell reports of the script that it runs: bash, dash, zsh, ksh. A wrong comparison ends no script."""
CSH = (
    r"(?:[\w./@$-]{1,80}: )?(?:Expression Syntax|Badly formed number|Variable name must \S.{1,60}|Variable syntax|Words not parenthesized|Unmatched .{1,4}|Missing [\])}]|Too many [()]\S{1,4}|Too (?:few|many) arguments|Not in while/foreach"
    r"|Subscript (?:error|out of range)|Bad : modifier.{1,20}|Event not found|Invalid null command|Missing name for redirect|Ambiguous(?: (?:input|output))? redirect|Argument list too long|Division by 0|Mod by 0|label not found|else/endif not found|then/endif not found|endif not found|endsw not found|end not found|Improper (?:then|mask)|Badly placed .{1,4}|Illegal variable name|Syntax Error|Word too long|Empty if|Unknown (?:user|operator)\b.{0,40}|No such (?:job|limit))\.$"
)
"""csh and tcsh, which name no line."""
SHELL_TRIGGERS = (
    ": line ",
    *(
        f"{script}{mark}"
        for script in (
            ".sh",
            "/sh",
            "bash",
            "dash",
            "ksh",
            "csh",
            "zsh",
            "_script",
            ".slurm",
            ".sbatch",
            ".job",
            ".pbs",
            ".cmd",
        )
        for mark in (":", "[")
    ),
    *("sh:: ", "sh: : ", "sh[]: "),
)
CSH_TRIGGERS = (
    "Syntax.",
    "formed number.",
    "Variable name",
    "Variable syntax",
    "parenthesized.",
    "Unmatched ",
    "Missing }",
    "Missing ]",
    "Missing )",
    "Too many (",
    "Too many )",
    "Too many argu",
    "Too few argu",
    "Not in while",
    "Subscript error",
    "Subscript out",
    "Bad : mod",
    "null command.",
    "redirect.",
    "ivision by ",
    "Badly placed ",
    "variable name.",
    "x Error.",
    "Word too long.",
    "Empty if.",
    "Unknown user",
    "Unknown operator",
    "Mod by ",
    "Improper ",
    *(f"{what} not found." for what in ("label", "endif", "endsw", "end", "Event")),
    *("such job.", "rgument list too", "such limit."),
)
