package content

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		what []string
		want Rule
		// refused is what the error says.
		refused string
	}{
		{what: []string{"syn"}, want: Rule{Kind: SYN}},
		{what: []string{"SYNACK"}, want: Rule{Kind: SYNACK}},
		{what: []string{"fin"}, want: Rule{Kind: FIN}},
		{what: []string{"rst"}, want: Rule{Kind: RST}},
		{what: []string{"retransmit"}, want: Rule{Kind: Retransmit}},
		{what: []string{"data:3"}, want: Rule{Kind: Data, N: 3}},
		{what: []string{"every:2147483648"}, want: Rule{Kind: Every, N: 1 << 31}},
		{what: []string{"match", "tcp.len > 100"}, want: Rule{Kind: Match, Expr: "tcp.len > 100"}},
		{what: []string{"match", "tcp.len", ">", "100"}, want: Rule{Kind: Match, Expr: "tcp.len > 100"}},
		{what: []string{"match tcp.syn"}, want: Rule{Kind: Match, Expr: "tcp.syn"}},
		{what: []string{"match 'tcp.syn'"}, want: Rule{Kind: Match, Expr: "tcp.syn"}},
		{what: []string{"match", "payload[0] == 'Q'"}, want: Rule{Kind: Match, Expr: "payload[0] == 'Q'"}},
		{what: nil, refused: `"": want syn, synack,`},
		{what: []string{"ack"}, refused: `"ack": want syn, synack,`},
		{what: []string{"syn", "fin"}, refused: `"syn fin": want syn, synack,`},
		{what: []string{"syn:2"}, refused: `"syn:2": want syn without a number`},
		{what: []string{"data"}, refused: `"data": want data:N with N from 1 to 2147483648`},
		{what: []string{"data:0"}, refused: `"data:0": want data:N with N from 1`},
		{what: []string{"every:-1"}, refused: `"every:-1": want every:N`},
		{what: []string{"every:2147483649"}, refused: `want every:N with N from 1 to 2147483648`},
		{what: []string{"data:1.5"}, refused: `want data:N`},
		{what: []string{"match"}, refused: `expr: want an expression`},
		{what: []string{"match", "tcp."}, refused: `expr "tcp.": column 5: `},
	} {
		got, err := Parse(tt.what)
		if tt.refused != "" {
			if !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(fmt.Sprint(err), tt.refused) {
				t.Errorf("Parse(%q): %v, want %q", tt.what, err, tt.refused)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("Parse(%q): %v (-want +got):\n%s", tt.what, err, diff)
		}
		if again, err := Parse([]string{got.What()}); err != nil || again != got {
			t.Errorf("Parse(%q): %+v, %v", got.What(), again, err)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%q: %v", tt.what, err)
		}
	}
}

func TestRuleString(t *testing.T) {
	for want, r := range map[string]Rule{
		"drop syn, 1 packet of each connection": {Kind: SYN, Count: 1, PerConnection: true},
		"hold data:3 for 1m, 2 packets":         {Kind: Data, N: 3, Hold: time.Minute, Count: 2},
		"hold match 'tcp.len > 1' for 150us":    {Kind: Match, Expr: "tcp.len > 1", Hold: 150 * time.Microsecond},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		rule Rule
		// want are how the lines of the error begin.
		want []string
	}{
		{"drop", Rule{Kind: SYN, Count: 1}, nil},
		{"hold", Rule{Kind: Data, N: 1 << 31, Hold: time.Minute, Count: 1 << 31, PerConnection: true}, nil},
		{"every of each", Rule{Kind: Every, N: 2, PerConnection: true}, nil},
		{"nothing", Rule{}, []string{`kind: want syn`}},
		{"kind", Rule{Kind: "ack", N: 1}, []string{`kind "ack": want syn`}},
		{"data without", Rule{Kind: Data}, []string{`n "0": want 1 to 2147483648`}},
		{"every above", Rule{Kind: Every, N: 1<<31 + 1}, []string{`n "2147483649"`}},
		{"number of none", Rule{Kind: FIN, N: 1}, []string{`n "1": want 0`}},
		{"no expression", Rule{Kind: Match}, []string{`expr: want an expression`}},
		{"expression of none", Rule{Kind: RST, Expr: "tcp"}, []string{`expr "tcp": want nothing`}},
		{"count", Rule{Kind: RST, Count: 1<<31 + 1}, []string{`count "2147483649"`}},
		{"each of none", Rule{Kind: RST, PerConnection: true}, []string{`per_connection: want a count`}},
		{"hold short", Rule{Kind: RST, Hold: 1}, []string{`hold "1ns": want 100us to 1m`}},
		{"hold long", Rule{Kind: RST, Hold: time.Hour}, []string{`hold "1h"`}},
		{"hold below", Rule{Kind: RST, Hold: -time.Second}, []string{`hold "-1s"`}},
		{"all", Rule{Kind: Data, Expr: "x", Count: 1<<31 + 1, Hold: -1}, []string{`n "0"`, `expr "x"`, `count`, `hold`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			if err := tt.rule.Validate(); err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(tt.want) {
				t.Fatalf("got %q, want %q", lines, tt.want)
			}
			for i := range lines {
				if !strings.HasPrefix(lines[i], tt.want[i]) {
					t.Errorf("got %q, want %q", lines[i], tt.want[i])
				}
			}
		})
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	deep := strings.Repeat("ip.len+(", 8) + "1" + strings.Repeat(")", 8) + " > 2"
	for src, want := range map[string]string{
		"":                               "want an expression",
		" ":                              "want an expression",
		"tcp.syn\n":                      "want one line",
		"tcp.syn &&":                     "column 11: expected operand",
		"tcp.syn; tcp.ack":               "column 8: ",
		"tcp.sin":                        "column 1: no field tcp.sin; want one of tcp.ack, ",
		"tpc.syn":                        "column 1: no field tpc.syn; want one of icmp, ",
		"ip.ttl == 3 && tcp.lenn > 1":    "column 16: no field tcp.lenn",
		"ip.ttl":                         "column 1: ip.ttl is a number; want a comparison, such as ip.ttl > 0",
		"1":                              "column 1: 1 is no condition",
		"tcp.flags & 2":                  "column 1: tcp.flags & 2 is no condition",
		"ip.ttl == (tcp.syn && tcp.ack)": "column 12: tcp.syn && tcp.ack is no number",
		"ip.ttl * 2 == 4":                "column 1: ip.ttl * 2 is no number",
		"ip.ttl == -1":                   "column 11: -1 is no number",
		"ip.ttl == 4294967296":           "column 11: 4294967296 is no number from 0 to 4294967295",
		"ip.ttl == 1.5":                  "column 11: 1.5 is no number",
		"ip.ttl == 'é€'":                 "column 11: ",
		"ip.ttl == '€'":                  "column 11: '€' is no number",
		`ip.ttl == "a"`:                  `column 11: "a" is no number`,
		"payload[65536] == 1":            "column 9: 65536 is no place in the payload",
		"payload[ip.ttl] == 1":           "column 9: ip.ttl is no place",
		"payload[1:2] == 1":              "column 1: payload[1:2] is no number",
		"tcp[1] == 1":                    "column 1: tcp[1] is no number",
		`payload.at(0)`:                  "column 1: want payload.at(0, ",
		`payload.at(0, "")`:              "column 15: want 1 to 64 bytes",
		`payload.at(0, 5)`:               "column 15: want payload.at",
		`payload.at(0, 0x123)`:           "column 15: want payload.at",
		`payload.at(65535, "ab")`:        "column 12: 65535 is no place",
		`payload.is(0, "a")`:             "column 1: want payload.at",
		`at(0, "a")`:                     "column 1: want payload.at",
		`payload.at(0, "` + strings.Repeat("a", 65) + `")`: "column 15: want 1 to 64 bytes",
		"func() {}": "column 1: func() {} is no condition",
		deep:        "at most 8 sums in one another",
		"ip.len>1" + strings.Repeat("&&ip.len>1", 64): "65 fields, bytes and texts: at most 64",
		strings.Repeat("(", 1025):                     "want at most 1024 bytes",
		strings.Repeat("(", 1024):                     "column ",
		strings.Repeat("!", 1017) + "tcp.sin":         "column 1018",
	} {
		_, err := ParseExpr(src)
		var field *qdisc.FieldError
		if !errors.As(err, &field) || field.Field != "expr" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "an expression; ") {
			t.Errorf("%q: %v, want %q", src, err, want)
		}
	}
}

// What was parsed is printed and parsed again by nobody; but parsing never panics, and
// what it takes can be evaluated.
func FuzzParseExpr(f *testing.F) {
	for _, s := range []string{
		"tcp.syn && !tcp.ack || ip.len > 1", `payload.at(5, "COMMIT")`, "payload[3] & 0x0f == 'a' - 1", "icmp.type == 8", "payload.at(0, 0x00ff)",
	} {
		f.Add(s)
	}
	tcp := []byte("............\x08\x00\x45\x00\x00\x2c\x00\x01\x00\x00\x40\x06\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02" +
		"\x10\x00\x00\x50\x00\x00\x00\x01\x00\x00\x00\x02\x50\x18\xff\xff\x00\x00\x00\x00abcd")
	f.Fuzz(func(t *testing.T, src string) {
		c, err := ParseExpr(src)
		if err != nil {
			if !errors.Is(err, qdisc.ErrInvalid) {
				t.Errorf("%q: %v", src, err)
			}
			return
		}
		for n := range len(tcp) {
			Holds(c, tcp[:n], 14)
			Holds(c, tcp[14:14+max(0, n-14)], 0)
		}
	})
}
