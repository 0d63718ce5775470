package content

import (
	"fmt"
	"strconv"
	"strings"

	"netemd/qdisc"
)

// words are what Parse takes.
const words = `syn, synack, fin, rst, data:N, retransmit, every:N, or match 'EXPR', such as match 'tcp.len > 100'`

// Parse reads what a rule chooses, as it is typed: {"syn"}, {"data:3"}, {"every:100"},
// {"match", "tcp.len > 100"}; what What returns is one word of it. The words behind
// match are joined by spaces. What becomes of the packets is not said here. The error is
// a *qdisc.FieldError, without a field unless it is "expr".
func Parse(what []string) (Rule, error) {
	all := strings.TrimSpace(strings.Join(what, " "))
	word, rest, _ := strings.Cut(all, " ")
	refuse := func(want string) (Rule, error) {
		return Rule{}, &qdisc.FieldError{Value: all, Want: want}
	}
	if kind := Kind(strings.ToLower(word)); kind == Match {
		return parseMatch(strings.TrimSpace(rest))
	}
	if rest != "" {
		return refuse(words)
	}
	name, number, numbered := strings.Cut(strings.ToLower(word), ":")
	switch kind := Kind(name); kind {
	case SYN, SYNACK, FIN, RST, Retransmit:
		if numbered {
			return refuse(fmt.Sprintf("%s without a number; --count says how many of them", kind))
		}
		return Rule{Kind: kind}, nil
	case Data, Every:
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n == 0 || n > MaxN {
			return refuse(fmt.Sprintf("%s:N with N from 1 to %d, such as %s:3", kind, uint32(MaxN), kind))
		}
		return Rule{Kind: kind, N: uint32(n)}, nil
	}
	return refuse(words)
}

// parseMatch takes a pair of quotes off, which no shell took off, so that What can be
// parsed. An expression may begin and end with quotes of its own.
func parseMatch(expr string) (Rule, error) {
	_, err := ParseExpr(expr)
	if n := len(expr); err != nil && n >= 2 && expr[0] == '\'' && expr[n-1] == '\'' {
		if _, err := ParseExpr(expr[1 : n-1]); err == nil {
			return Rule{Kind: Match, Expr: expr[1 : n-1]}, nil
		}
	}
	return Rule{Kind: Match, Expr: expr}, err
}
