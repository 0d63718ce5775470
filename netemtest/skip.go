package netemtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"netemd/internal/fault"
	"netemd/internal/feature"
)

// requireEnv makes each skip a failure.
const requireEnv = "NETEMTEST_REQUIRE"

// errNoAgent is of a process that neither is root nor finds an agent.
var errNoAgent = fault.WithHint(
	fmt.Errorf("there is no agent, and to be one takes root: %w", fs.ErrPermission),
	"go test -exec sudo, or sudo netemd in another terminal")

// sessionOf is the session for a test; without one the test is skipped or fails.
func sessionOf(t testing.TB) *Session {
	t.Helper()
	s, err := session(t.Context())
	if err != nil {
		refuse(t, err)
	}
	return s
}

// refuse ends the test: with a skip for what this machine cannot do, by what trying it gave,
// and with a failure for everything else.
func refuse(t testing.TB, err error) {
	t.Helper()
	text := "netemtest: " + err.Error()
	if hint := fault.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	switch {
	case !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, errNoAgent):
		t.Fatal(text)
	case os.Getenv(requireEnv) != "" && os.Getenv(requireEnv) != "0":
		t.Fatal(text + "; " + requireEnv + " is set, so that this is no reason to skip the test")
	default:
		t.Skip(text)
	}
}

// unsupported adds to err what trying the kernel gave, where that is why.
func (s *Session) unsupported(ctx context.Context, err error) error {
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	r, featureErr := s.client.Features(ctx)
	if featureErr != nil {
		return err
	}
	if text := missing(r); text != "" {
		return fmt.Errorf("%w; kernel %s: %s", err, r.Kernel, text)
	}
	return err
}

// missing says what does not work, in doctor's words: "sch_netem: no (...)".
func missing(r feature.Report) string {
	var words []string
	for _, f := range r.Features {
		if f.State != feature.Yes {
			words = append(words, fmt.Sprintf("%s: %s (%s)", f.Name, f.State, f.Detail))
		}
	}
	return strings.Join(words, "; ")
}
