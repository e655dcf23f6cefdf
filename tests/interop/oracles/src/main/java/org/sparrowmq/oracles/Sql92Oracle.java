package org.sparrowmq.oracles;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * {"expression": text, "properties": [map, ...]} becomes one letter per map: t(rue), f(alse), n(ull), e(valuation threw),
 * or r when the expression itself is refused.
 */
final class Sql92Oracle {
    private Sql92Oracle() {
    }

    static Object answer(JSONObject request) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(request.getString("expression"));
        } catch (Throwable refused) {
            return "r";
        }
        JSONArray all = request.getJSONArray("properties");
        StringBuilder answers = new StringBuilder();
        for (int i = 0; i < all.size(); i++) {
            answers.append(evaluate(expression, all.getJSONObject(i)));
        }
        return answers.toString();
    }

    private static char evaluate(Expression expression, JSONObject properties) {
        try {
            Object value = expression.evaluate(new Properties(properties));
            return value == null ? 'n' : ((Boolean) value) ? 't' : 'f';
        } catch (Throwable thrown) {
            return 'e';
        }
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, Object> values;

        Properties(Map<String, Object> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }
}
