package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// producers by name: every way to send, request-reply, and a steady load in the background.
type producers struct {
	byName map[string]rocketmq.Producer
	loads  map[string]*load
}

func newProducers() *producers {
	return &producers{byName: map[string]rocketmq.Producer{}, loads: map[string]*load{}}
}

func (p *producers) register(ops map[string]operation) {
	ops["producer_start"] = p.start
	ops["producer_stop"] = p.stop
	ops["send"] = p.send
	ops["send_to_queue"] = p.sendToQueue
	ops["send_selected"] = p.send
	ops["send_async"] = p.sendAsync
	ops["send_one_way"] = p.sendOneWay
	ops["send_batch"] = p.sendBatch
	ops["request"] = p.request
	ops["load_start"] = p.startLoad
	ops["load_stop"] = p.stopLoad
}

func (p *producers) get(c command) rocketmq.Producer {
	return p.byName[c.text("name", "")]
}

// selector puts a message where its queue or its sharding key says, and else goes round.
type selector struct{ byHash, roundRobin producer.QueueSelector }

func (s selector) Select(message *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if message.Queue != nil {
		return message.Queue
	}
	if message.GetShardingKey() != "" {
		return s.byHash.Select(message, queues, last)
	}
	return s.roundRobin.Select(message, queues, last)
}

func (p *producers) start(c command) (any, error) {
	options := []producer.Option{
		producer.WithNameServer(c.nameServer()),
		producer.WithGroupName(c.text("group", "")),
		producer.WithInstanceName(c.text("name", "")),
		producer.WithDefaultTopicQueueNums(int(c.number("queues", 4))),
		producer.WithSendMsgTimeout(time.Duration(c.number("timeout_ms", 15_000))*time.Millisecond),
		producer.WithRetry(2),
		producer.WithVIPChannel(c.flag("vip_channel")),
		producer.WithQueueSelector(selector{producer.NewHashQueueSelector(), producer.NewRoundRobinQueueSelector()}),
	}
	if c.flag("trace") {
		options = append(options, producer.WithTrace(&primitive.TraceConfig{
			Access: primitive.Local, NamesrvAddrs: c.nameServer()}))
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	p.byName[c.text("name", "")] = made
	return nil, made.Start()
}

func (p *producers) stop(c command) (any, error) {
	made := p.get(c)
	delete(p.byName, c.text("name", ""))
	return nil, made.Shutdown()
}

// send each message so many times, always as the same object.
func (p *producers) send(c command) (any, error) {
	results := []any{}
	for _, message := range c.messages() {
		for i := int64(0); i < c.number("times", 1); i++ {
			result, err := p.get(c).SendSync(context.Background(), message)
			if err != nil {
				return nil, err
			}
			results = append(results, sent(result))
		}
	}
	return results, nil
}

func (p *producers) sendToQueue(c command) (any, error) {
	results := []any{}
	for _, message := range c.messages() {
		message.Queue = c.queue()
		result, err := p.get(c).SendSync(context.Background(), message)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result))
	}
	return results, nil
}

func (p *producers) sendAsync(c command) (any, error) {
	messages := c.messages()
	results := make([]any, len(messages))
	var done sync.WaitGroup
	for i, message := range messages {
		slot := i
		done.Add(1)
		err := p.get(c).SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				defer done.Done()
				if err != nil {
					results[slot] = map[string]any{"error": described(err)}
				} else {
					results[slot] = sent(result)
				}
			}, message)
		if err != nil {
			return nil, err
		}
	}
	all := make(chan struct{})
	go func() { done.Wait(); close(all) }()
	select {
	case <-all:
		return results, nil
	case <-time.After(20 * time.Second):
		return nil, fmt.Errorf("not every callback came")
	}
}

func (p *producers) sendOneWay(c command) (any, error) {
	for _, message := range c.messages() {
		if err := p.get(c).SendOneWay(context.Background(), message); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (p *producers) sendBatch(c command) (any, error) {
	result, err := p.get(c).SendSync(context.Background(), c.messages()...)
	if err != nil {
		return nil, err
	}
	return sent(result), nil
}

func (p *producers) request(c command) (any, error) {
	reply, err := p.get(c).Request(context.Background(), c.timeout(), c.messages()[0])
	if err != nil {
		return nil, err
	}
	return map[string]any{"body": shown(reply.Body)}, nil
}

// load sends at a fixed rate and remembers which bodies were acknowledged.
type load struct {
	stop         chan struct{}
	done         sync.WaitGroup
	guard        sync.Mutex
	acknowledged []string
	attempted    int
	failed       atomic.Int64
}

func (p *producers) startLoad(c command) (any, error) {
	made := &load{stop: make(chan struct{})}
	p.loads[c.text("name", "")] = made
	target, topic := p.get(c), c.text("topic", "")
	tick := time.NewTicker(time.Second / time.Duration(c.number("per_second", 100)))
	made.done.Add(1)
	go func() {
		defer made.done.Done()
		defer tick.Stop()
		for {
			select {
			case <-made.stop:
				return
			case <-tick.C:
				body := fmt.Sprintf("load %d", made.attempted)
				made.attempted++
				made.done.Add(1)
				go made.sendOne(target, topic, body)
			}
		}
	}()
	return nil, nil
}

func (l *load) sendOne(target rocketmq.Producer, topic, body string) {
	defer l.done.Done()
	result, err := target.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
	if err != nil || result.Status != primitive.SendOK {
		l.failed.Add(1)
		return
	}
	l.guard.Lock()
	defer l.guard.Unlock()
	l.acknowledged = append(l.acknowledged, body)
}

func (p *producers) stopLoad(c command) (any, error) {
	made := p.loads[c.text("name", "")]
	close(made.stop)
	made.done.Wait()
	return map[string]any{"acknowledged": made.acknowledged, "attempted": made.attempted,
		"failed": made.failed.Load()}, nil
}
