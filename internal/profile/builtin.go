package profile

import (
	"time"

	"netemd/qdisc"
)

// The sources of several profiles. Each was read for these numbers.
var (
	webPageTest = Source{
		Title: "WebPageTest, connectivity profiles (connectivity.ini.sample)", Year: "2017",
		URL: "https://github.com/catchpoint/WebPageTest/blob/6a79fedb6bb5792f11d2891d9ae80f8ffb8b1a7d/www/settings/connectivity.ini.sample",
	}
	queueLength = Source{
		Title: "RFC 8868, Evaluating Congestion Control for Interactive Real-Time Media, section 4.3", Year: "2021",
		URL:  "https://www.rfc-editor.org/rfc/rfc8868.html",
		Says: "a drop-tail queue of 300 ms before the rate, the least that it calls nominal (300..500 ms); 10 packets at least",
	}
	ookla = Source{
		Title: "Ookla, Speedtest Intelligence for the third quarter of 2021 (USA, medians)", Year: "2021",
		URL: "https://freestatefoundation.blogspot.com/2022/01/starlinks-performance-shows-prudence-of.html",
	}
	verizon = Source{
		Title: "Verizon, network latency guarantees (monthly averages between hub routers)", Year: "undated",
		URL: "https://www.verizon.com/business/terms/asiapac/sg/colocation/",
	}
)

// says is s with what was taken from it.
func (s Source) says(text string) Source {
	s.Says = text
	return s
}

// queue is queueLength's.
const queue = 300 * time.Millisecond

// access is a profile of a rate for each direction, and a round trip of which each has half.
func access(name, summary string, down, up uint64, roundTrip time.Duration, sources ...Source) Profile {
	return Profile{
		Name: name, Summary: summary, Sources: append(sources, queueLength),
		Uplink: link(up, roundTrip, queue), Downlink: link(down, roundTrip, queue),
	}
}

const (
	kbit = 1000
	mbit = 1000 * kbit
)

// Builtins are the profiles that every netemctl knows.
func Builtins() []Profile {
	const ms = time.Millisecond
	return []Profile{
		access("dialup", "a modem of 56 kbit/s", 49*kbit, 30*kbit, 120*ms,
			webPageTest.says("\"56K Dial-Up\": 49 kbit/s down, 30 kbit/s up, round trip 120 ms, of which each direction has half")),
		access("edge", "2.5G mobile", 240*kbit, 200*kbit, 840*ms,
			webPageTest.says("\"Mobile Edge\": 240 kbit/s down, 200 kbit/s up, round trip 840 ms, of which each direction has half")),
		access("3g-slow", "3G mobile, slow", 780*kbit, 330*kbit, 200*ms,
			webPageTest.says("\"Mobile 3G - Slow\": 780 kbit/s down, 330 kbit/s up, round trip 200 ms, of which each direction has half")),
		access("3g", "3G mobile", 1600*kbit, 768*kbit, 300*ms,
			webPageTest.says("\"Mobile 3G\": 1.6 Mbit/s down, 768 kbit/s up, round trip 300 ms, of which each direction has half")),
		access("4g-slow", "4G mobile, the slowest quarter", 1600*kbit, 750*kbit, 150*ms,
			Source{
				Title: "Lighthouse, the mobile network throttling preset", Year: "2018",
				URL:  "https://github.com/GoogleChrome/lighthouse/blob/main/docs/throttling.md",
				Says: "\"Slow 4G\": 1.6 Mbit/s down, 750 kbit/s up, latency 150 ms, taken as a round trip of which each direction has half",
			}),
		access("lte", "4G LTE mobile", 13*mbit, 6*mbit, 70*ms,
			Source{
				Title: "J. Huang et al., A Close Examination of Performance and Power Characteristics of 4G LTE Networks, MobiSys", Year: "2012",
				URL:  "https://experts.umn.edu/en/publications/a-close-examination-of-performance-and-power-characteristics-of-4",
				Says: "medians of 13 Mbit/s down and 6 Mbit/s up, measured by 3,000 users",
			},
			webPageTest.says("\"Mobile LTE\": round trip 70 ms, of which each direction has half")),
		access("dsl", "a slow ADSL line", 1500*kbit, 384*kbit, 50*ms,
			webPageTest.says("\"DSL\": 1.5 Mbit/s down, 384 kbit/s up, round trip 50 ms, of which each direction has half")),
		access("cable", "a cable modem", 5*mbit, 1*mbit, 28*ms,
			webPageTest.says("\"Cable\": 5 Mbit/s down, 1 Mbit/s up, round trip 28 ms, of which each direction has half")),
		access("fiber", "fiber to the home", 20*mbit, 5*mbit, 4*ms,
			webPageTest.says("\"FIOS\": 20 Mbit/s down, 5 Mbit/s up, round trip 4 ms, of which each direction has half")),
		access("satellite", "a geostationary satellite", 18_750*kbit, 2_960*kbit, 629*ms,
			ookla.says("Viasat: 18.75 Mbit/s down, 2.96 Mbit/s up"),
			Source{
				Title: "Ookla, as above, latencies", Year: "2021", URL: "https://advanced-television.com/2021/12/22/starlink-speeds-under-pressure/",
				Says: "Viasat: 629 ms, a round trip of which each direction has half",
			}),
		access("leo-satellite", "a satellite in low orbit", 87_250*kbit, 13_540*kbit, 44*ms,
			ookla.says("Starlink: 87.25 Mbit/s down, 13.54 Mbit/s up, latency 44 ms, a round trip of which each direction has half; its losses at handovers are not in the profile")),
		symmetric("lossy-wifi", "Wi-Fi at the edge of its reach", qdisc.Netem{Delay: 10 * ms, Loss: 5},
			Source{
				Title: "C. Pei et al., WiFi can be the weakest link of round trip network latency in the wild, INFOCOM", Year: "2016",
				URL:  "https://paperexplained.cn/articles/paper/detail/aadd9fa14b6597dd00f5d77157bad602709f7d33",
				Says: "more than half of the packets met 20 ms on the Wi-Fi hop there and back, of which each direction has half; the tail (10 % above 100 ms) is not in the profile",
			},
			Source{
				Title: "RFC 8868, section 4.2", Year: "2021", URL: "https://www.rfc-editor.org/rfc/rfc8868.html",
				Says: "5 % loss, the middle of its test values 0, 1, 5, 10 and 20 %: a value to test with, not a measurement",
			}),
		symmetric("cross-az", "between two zones of one cloud region", qdisc.Netem{Delay: 1 * ms},
			Source{
				Title: "Microsoft, What are availability zones?", Year: "2024",
				URL:  "https://learn.microsoft.com/en-us/azure/reliability/availability-zones-overview",
				Says: "a round trip of less than about 2 ms is aimed at: half of that upper bound each way",
			}),
		symmetric("transatlantic", "New York to London", qdisc.Netem{Delay: 45 * ms},
			verizon.says("a round trip of 90 ms or less between New York and London: half of that each way")),
		symmetric("transpacific", "Los Angeles to Tokyo", qdisc.Netem{Delay: 80 * ms},
			verizon.says("a round trip of 160 ms or less between Los Angeles and Tokyo: half of that each way")),
	}
}

// symmetric is a profile whose directions are the same.
func symmetric(name, summary string, n qdisc.Netem, sources ...Source) Profile {
	return Profile{Name: name, Summary: summary, Uplink: n, Downlink: n, Sources: sources}
}
