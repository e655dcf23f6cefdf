package main

import (
	"context"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// transactions holds transactional producers whose answers are written in the messages' own properties.
type transactions struct {
	byName map[string]rocketmq.TransactionProducer
	guard  sync.Mutex
	checks map[string]int
}

func newTransactions() *transactions {
	return &transactions{byName: map[string]rocketmq.TransactionProducer{}, checks: map[string]int{}}
}

func (t *transactions) register(ops map[string]operation) {
	ops["transaction_start"] = t.start
	ops["transaction_send"] = t.send
	ops["transaction_checks"] = func(command) (any, error) {
		t.guard.Lock()
		defer t.guard.Unlock()
		copied := map[string]int{}
		for body, times := range t.checks {
			copied[body] = times
		}
		return copied, nil
	}
	ops["transaction_stop"] = func(c command) (any, error) {
		return nil, t.byName[c.text("name", "")].Shutdown()
	}
}

var states = map[string]primitive.LocalTransactionState{
	"COMMIT_MESSAGE":   primitive.CommitMessageState,
	"ROLLBACK_MESSAGE": primitive.RollbackMessageState,
	"UNKNOW":           primitive.UnknowState,
}

// ExecuteLocalTransaction answers what the message's "execute" property says.
func (t *transactions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return states[message.GetProperty("execute")]
}

// CheckLocalTransaction answers what the message's "check" property says, and counts the question.
func (t *transactions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	t.guard.Lock()
	defer t.guard.Unlock()
	t.checks[string(message.Body)]++
	return states[message.GetProperty("check")]
}

func (t *transactions) start(c command) (any, error) {
	made, err := rocketmq.NewTransactionProducer(t,
		producer.WithNameServer(c.nameServer()),
		producer.WithGroupName(c.text("group", "")),
		producer.WithInstanceName(c.text("name", "")),
	)
	if err != nil {
		return nil, err
	}
	t.byName[c.text("name", "")] = made
	return nil, made.Start()
}

func (t *transactions) send(c command) (any, error) {
	results := []any{}
	for _, message := range c.messages() {
		result, err := t.byName[c.text("name", "")].SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result.SendResult))
	}
	return results, nil
}
