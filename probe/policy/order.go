package policy

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultOrder is where the layers stand, from the outermost to the innermost. The
// package's documentation says why.
func DefaultOrder() []Layer {
	return []Layer{LayerFallback, LayerTimeout, LayerRetry, LayerHedge, LayerBreaker, LayerBulkhead, LayerAttemptTimeout}
}

// Layers are those of the policy that are there, from the outermost to the innermost.
func (p Policy) Layers() []Layer {
	if len(p.Order) > 0 {
		return slices.Clone(p.Order)
	}
	return slices.DeleteFunc(DefaultOrder(), func(l Layer) bool { return !p.has(l) })
}

func (p Policy) has(l Layer) bool {
	switch l {
	case LayerFallback:
		return p.Fallback != nil
	case LayerTimeout:
		return p.CallTimeout != 0
	case LayerRetry:
		return p.Retry != nil
	case LayerHedge:
		return p.Hedge != nil
	case LayerBreaker:
		return p.Breaker != nil
	case LayerBulkhead:
		return p.Bulkhead != nil
	case LayerAttemptTimeout:
		return p.AttemptTimeout != 0
	}
	return false
}

// checkOrder refuses an order that leaves out what is there, or in which a timeout is not
// what its name says.
func (p Policy) checkOrder(refuse func(bad bool, field, value, want string)) {
	if len(p.Order) == 0 {
		return
	}
	at := map[Layer]int{}
	for i, l := range p.Order {
		field := fmt.Sprintf("order[%d]", i)
		_, again := at[l]
		switch {
		case !slices.Contains(DefaultOrder(), l):
			refuse(true, field, string(l), "one of "+join(DefaultOrder()))
		case again:
			refuse(true, field, string(l), "each layer once")
		case !p.has(l):
			refuse(true, field, string(l), "a layer that the policy has: "+join(Policy.Layers(p.unordered())))
		}
		at[l] = i
	}
	for _, l := range p.unordered().Layers() {
		if _, ok := at[l]; !ok {
			refuse(true, "order", join(p.Order), "every layer that the policy has; "+string(l)+" is missing")
		}
	}
	for _, rule := range []struct {
		outer, inner Layer
		why          string
	}{
		{LayerTimeout, LayerRetry, "timeout before retry: inside of it, it would be a timeout of each attempt, which is attempt_timeout"},
		{LayerTimeout, LayerHedge, "timeout before hedge: inside of it, it would be a timeout of each attempt, which is attempt_timeout"},
		{LayerTimeout, LayerAttemptTimeout, "timeout before attempt_timeout"},
		{LayerRetry, LayerAttemptTimeout, "retry before attempt_timeout: outside of it, it would be a timeout of the call, which is timeout"},
		{LayerHedge, LayerAttemptTimeout, "hedge before attempt_timeout: outside of it, it would be a timeout of all that are hedged"},
	} {
		o, hasOuter := at[rule.outer]
		i, hasInner := at[rule.inner]
		refuse(hasOuter && hasInner && o > i, "order", join(p.Order), rule.why)
	}
}

func (p Policy) unordered() Policy {
	p.Order = nil
	return p
}

func join[S ~string](words []S) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}
