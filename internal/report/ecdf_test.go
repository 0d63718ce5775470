package report

import "testing"

// TestLabelsHaveRoom: no label of the time axis lies over another one or outside of the plot, and
// those of the decades are there.
func TestLabelsHaveRoom(t *testing.T) {
	for _, width := range []float64{360, 860} {
		for _, last := range []float64{3, 20, 90, 1000, 30_000} {
			p := newPlot(width, 300, []curve{{Steps: []float64{0.6, last}, Count: 2}}, width < 500)
			end, labels := 0.0, 0
			for _, k := range p.xTicks() {
				if k.Minor || k.Label == "" {
					continue
				}
				labels++
				w := 0.62 * p.FontSize * float64(len(k.Label))
				from := k.At - w/2
				if k.Anchor == "end" {
					from = k.At - w
				}
				if from < end || from+w > p.Width+0.1 {
					t.Errorf("width %g to %g ms: %q from %.0f to %.0f, the one before ends at %.0f", width, last, k.Label, from, from+w, end)
				}
				end = from + w
			}
			if labels < 2 {
				t.Errorf("width %g to %g ms: %d labels", width, last, labels)
			}
		}
	}
}
